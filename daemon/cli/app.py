"""Commands and their options; each hands over to the file that does the work.

Exit codes: 0 done, 2 the request or the agent's address is wrong, 3 a confirmed verdict ended the job
(``run --on-verdict stop``), else those of the command that ran. What a command needs is imported by it: the
command under ``run`` should not wait for gRPC.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from scoutd.daemon.errors import ScoutdError

app = typer.Typer(
    name="scoutd",
    help="Finds the rank that broke a distributed PyTorch training job.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Address = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT|unix:PATH", help="The agent to ask; default: the one that runs here."),
]
Verdicts = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write every verdict there, one JSON line per change.")
]
Job = Annotated[str, typer.Option(help="Only this job; default: all.")]


class Fault(str, Enum):
    HANG = "hang"
    CORRUPT = "corrupt"
    KILL = "kill"
    EXCEPTION = "exception"
    MISMATCH = "mismatch"
    NONE = "none"


class OnVerdict(str, Enum):
    CONTINUE = "continue"
    STOP = "stop"


class ReplayMode(str, Enum):
    SEEDED = "seeded"
    BROADCAST = "broadcast"
    BOTH = "both"


def run_app(arguments: Sequence[str]) -> int:
    """The exit code after the command has run; whatever the user got wrong is one line on standard error."""
    try:
        code = app(args=list(arguments), prog_name="scoutd", standalone_mode=True)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except ScoutdError as error:
        print(f"scoutd: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return int(code or 0)


@app.command(context_settings={"allow_interspersed_args": False})
def run(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="What to run, after `--`.")],
    stall_timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Silence that raises an alarm; default 30.")
    ] = None,
    on_verdict: Annotated[
        OnVerdict, typer.Option(help="stop: end the job at the first confirmed verdict and exit with code 3.")
    ] = OnVerdict.CONTINUE,
    verdicts: Verdicts = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The agent's configuration (TOML).")
    ] = None,
    node: Annotated[
        str | None, typer.Option(help="This node's name in verdicts; default: the host name.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="The agent's gRPC port; default: a free one.")] = None,
    http_port: Annotated[int | None, typer.Option(help="The agent's HTTP port; default: a free one.")] = None,
    nodes: Annotated[
        int | None,
        typer.Option(min=1, max=64, metavar="N", help="Start N agents that share the ranks of this machine."),
    ] = None,
    state_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the agent's state there; default: not kept.")
    ] = None,
    replay_every: Annotated[
        int | None,
        typer.Option(min=0, metavar="STEPS", help="Steps between replays; default 50, 0: on request only."),
    ] = None,
    replay_variants: Annotated[
        int | None, typer.Option(min=1, metavar="V", help="Recipes replayed each time; default 1.")
    ] = None,
    replay_mode: Annotated[
        ReplayMode | None,
        typer.Option(
            help="Inputs of replays: seeded (made on every rank, no traffic; the default), broadcast (real "
            "ones of the group's first rank, through the job's store), or both by turns."
        ),
    ] = None,
) -> None:
    """Run a command, for example torchrun, and watch its ranks.

    Uses the agent of this node if one runs and no option asks for another; else starts one for this run.
    Exits with the command's code, 128 + N if signal N ended it, 127 if there is no such command.
    """
    from scoutd.daemon.cli.options import RunOptions
    from scoutd.daemon.cli.run import run_command

    options = RunOptions(
        command=tuple(command),
        stop=on_verdict is OnVerdict.STOP,
        verdicts=verdicts,
        stall_timeout_s=stall_timeout,
        config=config,
        node=node,
        port=port,
        http_port=http_port,
        nodes=nodes,
        state_dir=state_dir,
        replay_every=replay_every,
        replay_variants=replay_variants,
        replay_mode=None if replay_mode is None else replay_mode.value,
    )
    raise typer.Exit(run_command(options).code)


@app.command()
def agent() -> None:
    """Run the node's agent; see `scoutd agent --help`."""
    raise AssertionError("dispatched before this")  # main() never gets here; the command exists for --help


@app.command()
def status(job: Job = "", address: Address = None, json: Json = False) -> None:
    """What every rank is doing now."""
    from scoutd.daemon.cli import read

    read.status(address, job, json)


@app.command()
def watch(job: Job = "", address: Address = None, json: Json = False) -> None:
    """Show every verdict as it changes, until interrupted or the agent ends."""
    from scoutd.daemon.cli import read

    read.watch(address, job, json)


@app.command()
def verdicts(
    job: Job = "",
    suppressed: Annotated[
        bool, typer.Option("--suppressed", help="Also alarms that were held back.")
    ] = False,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Read a file of `run --verdicts`.")
    ] = None,
    address: Address = None,
    json: Json = False,
) -> None:
    """List what was decided so far."""
    from scoutd.daemon.cli import read

    read.verdicts(address, job, suppressed, file, json)


@app.command()
def explain(
    id_: Annotated[str, typer.Argument(metavar="ID", help="The verdict's id or its beginning.")],
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Read a file of `run --verdicts`.")
    ] = None,
    address: Address = None,
    json: Json = False,
) -> None:
    """Show one verdict with everything it rests on."""
    from scoutd.daemon.cli import read

    read.explain(address, id_, file, json)


@app.command()
def topology(job: Job = "", address: Address = None, json: Json = False) -> None:
    """Show where the ranks of the whole job are and which process groups they form."""
    from scoutd.daemon.cli import read

    read.topology(address, job, json)


@app.command()
def replay(
    recipe: Annotated[
        str, typer.Option(metavar="NAME", help="A module's name or a recipe's id; default: all recipes.")
    ] = "",
    variants: Annotated[int, typer.Option(min=1, max=64, metavar="V", help="Times over.")] = 1,
    wait: Annotated[
        bool, typer.Option("--wait", help="Until the ranks here have done it; says what came of it.")
    ] = False,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="How long to wait at most.")] = 60.0,
    job: Job = "",
    address: Address = None,
    json: Json = False,
) -> None:
    """Have the ranks replay now, whatever their cadence. Answered by the agent of this machine only.

    Exits with 3 if a rank was found to compute wrongly (with --wait), 1 if the replays did not end in time.
    """
    from scoutd.daemon.cli.replay import Wish
    from scoutd.daemon.cli.replay import replay as ask

    raise typer.Exit(ask(address, Wish(job, recipe, variants, timeout, wait), json))


@app.command()
def analyze(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="Flight Recorder dumps (a directory or one file), or a file of `bundle`."
        ),
    ],
    json: Json = False,
) -> None:
    """Judge what a job left behind: Flight Recorder dumps, or a bundle."""
    from scoutd.daemon.cli.analyze import analyze as analyze_path

    analyze_path(path, json)


@app.command()
def bundle(
    id_: Annotated[str, typer.Argument(metavar="ID", help="The verdict's id or its beginning.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Default: scoutd-ID.tar.gz here; - for a pipe."),
    ] = None,
    address: Address = None,
) -> None:
    """Save everything that a verdict was decided on in one file, for `analyze`."""
    from scoutd.daemon.cli.bundle import bundle as save

    save(address, id_, output)


@app.command()
def doctor(
    job: Job = "",
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The agent's configuration (TOML).")
    ] = None,
    address: Address = None,
    json: Json = False,
) -> None:
    """Check this machine, and compare the limits of silence with the jobs' history."""
    from scoutd.daemon.cli.doctor import doctor as examine

    examine(address, job, config, json)


@app.command()
def demo(
    fault: Annotated[Fault, typer.Option(help="What breaks.")] = Fault.HANG,
    rank: Annotated[int, typer.Option(help="The rank that breaks.")] = 2,
    step: Annotated[int, typer.Option(help="The step at which it breaks.")] = 20,
    ranks: Annotated[int, typer.Option(help="How many ranks train.")] = 4,
    verdicts: Verdicts = None,
) -> None:
    """Train a small real model on CPU ranks, break one of them, and show the verdict.

    Exits with 0 if the verdict names the broken rank and nobody else.
    """
    from scoutd.daemon.cli.demo import Demo
    from scoutd.daemon.cli.demo import demo as run_demo

    raise typer.Exit(run_demo(Demo(fault.value, rank, step, ranks, verdicts)))
