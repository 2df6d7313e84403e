"""The command line of a storm: the options that all of them take."""
from measured import BUILT, RESULTS, command_line


def common(doc, name, smoke):
    """A parser with them; `smoke` says what --smoke does."""
    parser = command_line(doc)
    add = parser.add_argument
    add("--headstart", default=BUILT / "headstart")
    add("--out", default=RESULTS / f"storm-{name}.json")
    add("--smoke", action="store_true", help=f"{smoke}, keeps no results")
    return parser


def drawn(doc, name, smoke, count, what):
    """The same of a storm that draws `count` of `what` by chance."""
    parser = common(doc, name, smoke)
    parser.add_argument("-n", type=int, default=count, help=f"{what} [default: %(default)s]")
    parser.add_argument("--seed", type=int, default=1)
    return parser
