"""Implements the option `--json` of all commands that print figures. These commands print their JSON object through
this module, so that each object has a version field.
"""

import json
from collections.abc import Mapping
from typing import Any

import click

JSON_VERSION = 2
"""The version of the schema of all commands, raised when a field changes its meaning or goes; not for a new field."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, with the version of its schema.")


def print_json(row: Mapping[str, Any]) -> None:
    """Prints one JSON object on one line, with the field `version`."""
    click.echo(json.dumps({"version": JSON_VERSION} | dict(row)))
