"""``accept schema [contract|result]``."""

from __future__ import annotations

import json

import click


@click.command(name="schema")
@click.argument("what", type=click.Choice(["contract", "result"]), default="contract")
def command(what: str) -> None:
    """Print the JSON Schema (2020-12) of contracts or of result.json."""
    if what == "contract":
        from agent import contract
        from agent.checks import grammars

        schema = contract.schema(grammars())
    else:
        from agent.result import result_schema

        schema = result_schema()
    click.echo(json.dumps(schema, ensure_ascii=False, indent=1))
