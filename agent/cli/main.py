"""``accept``: commands are found by file name and imported only when they are called."""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import Any, Optional

import click

from agent import __version__
from agent.cli import commands

AGENT_FAILED = 4


class Lazy(click.Group):
    """A group whose commands are the modules of :mod:`agent.cli.commands`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(m.name for m in pkgutil.iter_modules(commands.__path__) if not m.name.startswith("_"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> Optional[click.Command]:
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = import_module(f"{commands.__name__}.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[Optional[str], Optional[click.Command], list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            near = get_close_matches(args[0], self.list_commands(ctx), 1)
            hint = f" Did you mean “{near[0]}”?" if near else ""
            raise click.UsageError(f"{error.message.rstrip('.')}.{hint}", ctx) from error


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="accept")
def cli() -> None:
    """Acceptance test for a rented GPU server.

    Write down what the vendor promised, then run `accept run contract.yaml` on the server: facts, loads, a
    verdict, and one HTML report with the evidence. Nothing is changed on the machine and root is not needed.

    Exit status of run and judge: 0 accepted in full scope, 1 rejected, 2 usage or contract error, 3 inconclusive
    or partial scope, 4 the agent itself failed, 130 interrupted.

    Shell completion: eval "$(_ACCEPT_COMPLETE=bash_source accept)" (or zsh_source, fish_source).
    """


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Entry point. A fault of our own ends with status 4 and says so; it is never a verdict."""
    if isinstance(sys.stdout, TextIOWrapper):
        # A terminal in GBK or ASCII cannot show every sign that is printed; that is no reason to end.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        result: Any = cli.main(args=argv, prog_name="accept", standalone_mode=False)
        sys.exit(result if isinstance(result, int) else 0)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of a pipe went away (``accept report … | head``): nobody is left to be told.
        sys.stderr.close()
        sys.exit(0)
    except Exception as fault:  # noqa: BLE001 - the last door: status 4, with the traceback for a bug report
        import traceback

        traceback.print_exc()
        click.echo(f"accept: a fault of accept itself ({type(fault).__name__}); this is no verdict", err=True)
        sys.exit(AGENT_FAILED)


if __name__ == "__main__":
    main()
