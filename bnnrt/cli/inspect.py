"""``bnnrt inspect``: what is in a bundle, and how it would run."""

from __future__ import annotations

from dataclasses import asdict, fields
from enum import Enum
from typing import Annotated, Any

import typer

from bnnrt.backends import select
from bnnrt.cli.options import BackendOption, BundleArgument, JsonOption
from bnnrt.cli.output import console, print_json, table
from bnnrt.graph import Graph, Node
from bnnrt.ops import Window
from bnnrt.plan import Plan, make_plan
from bnnrt.session import load_bundle

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("inspect")(inspect)


def _parameters(node: Node) -> str:
    """An operator's parameters in a few words; those of a window that are as usual are left out."""
    words = []
    for field in fields(node.op):  # type: ignore[arg-type]  # every operator is a dataclass
        value = getattr(node.op, field.name)
        if isinstance(value, Window):
            words.append("x".join(map(str, value.kernel)))
            usual = Window(value.kernel)
            for name in ("strides", "pads", "dilations"):
                if getattr(value, name) != getattr(usual, name):
                    words.append(f"{name} {','.join(map(str, getattr(value, name)))}")
        else:
            words.append(f"{field.name} {value.value if isinstance(value, Enum) else value}")
    return " ".join(words)


def _graph_rows(graph: Graph) -> list[dict[str, str]]:
    return [
        {
            "node": node.name,
            "operator": type(node.op).__name__,
            "parameters": _parameters(node),
            "output": str(graph.types[node.outputs[0]]),
        }
        for node in graph.nodes
    ]


def _plan_document(plan: Plan) -> dict[str, Any]:
    return {
        "device": plan.device.name,
        "backend": plan.device.backend,
        "batch": plan.batch,
        "device_bytes": plan.device_bytes,
        "arena_bytes": list(plan.arena),
        "constant_bytes": sum(c.nbytes for c in plan.constants.values()),
        "steps": [
            {
                "nodes": [node.name for node in step.nodes],
                "operators": [type(node.op).__name__ for node in step.nodes],
                "variant": step.variant,
                "passed_over": [{"variant": name, "why": why} for name, why in step.passed_over],
                "notes": list(step.notes),
                "launches": [
                    {
                        "kernel": spec.entry,
                        "grid": list(spec.grid),
                        "block": list(spec.block),
                        "local_bytes": spec.local_bytes,
                        "bytes": plan.bytes_moved(spec),
                    }
                    for spec in step.launches
                ],
            }
            for step in plan.steps
        ],
    }


def inspect(
    bundle: BundleArgument,
    plan: Annotated[bool, typer.Option("--plan", help="Show the kernels that would run, and why.")] = False,
    batch: Annotated[int, typer.Option(min=1, help="Images at once, for --plan.")] = 1,
    backend: BackendOption = "auto",
    variants: Annotated[
        str, typer.Option(help="Kernels to prefer: default, paper, or the name of one; for --plan.")
    ] = "default",
    as_json: JsonOption = False,
) -> None:
    """Show what is in a bundle: inputs, image pipeline, labels, layers; with [bold]--plan[/bold], its kernels.

    Example: [bold]bnnrt inspect vehicles.bnn --plan --backend opencl[/bold]
    """
    loaded = load_bundle(bundle)
    graph = loaded.pixels or loaded.model
    document: dict[str, Any] = {
        "inputs": [asdict(port) for port in loaded.inputs],
        "outputs": [asdict(port) for port in loaded.outputs],
        "pipeline": loaded.pipeline.to_json() if loaded.pipeline else None,
        "labels": list(loaded.labels) if loaded.labels else None,
        "provenance": asdict(loaded.provenance),
        "binding": asdict(loaded.binding) if loaded.binding else None,
        "layers": _graph_rows(graph),
    }
    if plan:
        fixed = next(iter(graph.inputs.values())).shape[0]
        document["plan"] = _plan_document(make_plan(graph, select(backend), fixed or batch, variants))
    if as_json:
        print_json(document)
    else:
        _print(document)


def _print(document: dict[str, Any]) -> None:
    out = console()
    for kind in ("inputs", "outputs"):
        for port in document[kind]:
            shape = ", ".join("N" if d is None else str(d) for d in port["shape"])
            out.print(f"{kind[:-1]:9}{port['name']}: {port['dtype']} [{shape}]", markup=False)
    if document["pipeline"]:
        out.print(f"pixels   {document['pipeline']}", markup=False)
    if document["labels"]:
        out.print(f"labels   {', '.join(document['labels'])}", markup=False)
    source = document["provenance"]
    out.print(
        f"from     {source['source']} (SHA-256 {source['source_sha256'][:12]}…), {source['converter']}", markup=False
    )
    if found := source["calibration"]:
        before, after = found["held_out_right"]
        out.print(
            f"tuned    on {found['images']} images; right of {found['held_out']} others: {before}, then {after}",
            markup=False,
        )
    rows = table("Layers", "node", "operator", "parameters", "output")
    for row in document["layers"]:
        rows.add_row(*row.values())
    out.print(rows)
    if "plan" in document:
        _print_plan(document["plan"])


def _print_plan(plan: dict[str, Any]) -> None:
    title = f"Plan for {plan['backend']} ({plan['device']}), batch {plan['batch']}"
    rows = table(title, "layer", "variant", "kernel", "grid", "block", "local", "bytes", "why not another")
    for step in plan["steps"]:
        why = "; ".join(f"{p['variant']}: {p['why']}" for p in step["passed_over"])
        layer = " + ".join(step["operators"])
        for spec in step["launches"] or [None]:
            if spec is None:
                rows.add_row(layer, step["variant"], "-", "", "", "", "", why)
                continue
            shapes = ["x".join(map(str, spec[name])) for name in ("grid", "block")]
            numbers = [str(spec["local_bytes"]), str(spec["bytes"])]
            rows.add_row(layer, step["variant"], spec["kernel"], *shapes, *numbers, why)
    out = console()
    out.print(rows)
    for step in plan["steps"]:
        for note in step["notes"]:
            out.print(f"note: {' + '.join(step['operators'])}: {note}")
    out.print(
        f"device memory {plan['device_bytes']} bytes: arena {sum(plan['arena_bytes'])} "
        f"in {len(plan['arena_bytes'])} slots, constants {plan['constant_bytes']}"
    )
