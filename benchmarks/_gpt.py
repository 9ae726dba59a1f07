"""A GPT as people train it: pre-norm blocks, causal attention by SDPA, activations recomputed in the backward pass."""

from __future__ import annotations

PARAMETERS_BYTES = 18  # fp32 weights, gradients and two moments of Adam, and a bf16 copy of the weights
LOGIT_BYTES = 10  # bf16 and fp32 logits and their gradient, for each token and word
LAYER_BYTES = 34  # activations of the one layer that is recomputed, for each token and unit of width (bf16)
KEPT_BYTES = 2  # what each checkpointed layer keeps of a token and unit of width


def parameters(shape):
    """Number of weights; the output shares its matrix with the input."""
    width = shape["width"]
    layer = 12 * width * width + 13 * width
    return shape["layers"] * layer + (shape["vocabulary"] + shape["sequence"]) * width + 2 * width


def operations(shape):
    """Arithmetic of training on one token: six for each weight, and the attention's products."""
    return 6.0 * parameters(shape) + 12.0 * shape["layers"] * shape["width"] * shape["sequence"]


def memory(shape, batch, shards):
    """Bytes on each device, roughly, with the state spread over so many devices."""
    tokens = batch * shape["sequence"]
    active = tokens * (
        shape["width"] * (KEPT_BYTES * shape["layers"] + LAYER_BYTES) + LOGIT_BYTES * shape["vocabulary"]
    )
    return PARAMETERS_BYTES * parameters(shape) / shards + active


def build(torch, shape):
    """(the model, the class of its blocks)."""
    nn, functional = torch.nn, torch.nn.functional
    width, heads = shape["width"], shape["heads"]

    class Block(nn.Module):
        """Attention and a feed-forward network, each added to what comes in."""

        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            from torch.utils.checkpoint import checkpoint

            return checkpoint(self.once, x, use_reentrant=False)

        def once(self, x):
            count, length, _ = x.shape
            parts = self.qkv(self.first(x)).view(count, length, 3, heads, width // heads)
            q, k, v = (part.transpose(1, 2) for part in parts.unbind(2))
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(count, length, width))
            return x + self.down(functional.gelu(self.up(self.second(x)), approximate="tanh"))

    class Gpt(nn.Module):
        """Tokens in, the mean loss of the next tokens out."""

        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(shape["vocabulary"], width)
            self.places = nn.Embedding(shape["sequence"], width)
            self.blocks = nn.ModuleList(Block() for _ in range(shape["layers"]))
            self.last = nn.LayerNorm(width)
            for weight in self.parameters():
                if weight.dim() > 1:
                    nn.init.normal_(weight, std=0.02)

        def forward(self, tokens):
            given, wanted = tokens[:, :-1], tokens[:, 1:]
            x = self.words(given) + self.places(torch.arange(given.shape[1], device=tokens.device))
            for block in self.blocks:
                x = block(x)
            logits = functional.linear(self.last(x), self.words.weight)
            return functional.cross_entropy(logits.float().flatten(0, 1), wanted.flatten())

    return Gpt(), Block
