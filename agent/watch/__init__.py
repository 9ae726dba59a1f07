"""``accept watch``: GPUs and the host during one's own work, live, as a log and as a summary of a span."""
