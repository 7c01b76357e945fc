"""Lines of code by package, files of more than 500 lines, and import circles: python .ci/lines.py

A line counts when it holds code: no docstring, comment or blank. A circle is a set of files that import one
another, directly or not, imports inside functions included. With --check, end with an error where a circle
has more than three files, or where one package imports a package of its own layer or above.
"""

import argparse
import io
import token
import tokenize
import tomllib
from collections import Counter
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "frhsic"
LONG, LARGEST_CIRCLE = 500, 3
SILENT = {token.COMMENT, token.NL, token.NEWLINE, token.INDENT, token.DEDENT, token.ENDMARKER, token.ENCODING}


def count_lines(text):
    """Return the number of lines that hold code."""
    lines, statement = set(), []
    for item in tokenize.tokenize(io.BytesIO(text.encode()).readline):
        if item.type not in SILENT:
            statement.append(item)
        elif item.type in (token.NEWLINE, token.ENDMARKER):
            if any(part.type != token.STRING for part in statement):  # else a docstring
                for part in statement:
                    lines.update(range(part.start[0], part.end[0] + 1))
            statement = []
    return len(lines)


def find_circles(graph):
    """Return the sets of modules that import one another, largest first (Tarjan's components)."""
    index, low, stack, circles = {}, {}, [], []

    def visit(module):
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(graph.find_modules_directly_imported_by(module)):
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            place = stack.index(module)
            circle = stack[place:]
            del stack[place:]
            if len(circle) > 1:
                circles.append(sorted(circle))

    for module in sorted(graph.modules):
        if module not in index:
            visit(module)
    return sorted(circles, key=lambda circle: (-len(circle), circle))


def find_arrows_up(graph):
    """Return the imports of a package of the same layer or above, of the layers in pyproject.toml."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = settings["contracts"][0]["layers"]
    height = {name.strip(): -k for k, names in enumerate(layers) for name in names.split("|")}
    arrows = []
    for module in sorted(graph.modules):
        for other in sorted(graph.find_modules_directly_imported_by(module)):
            first, second = ([*name.split("."), ""][1] for name in (module, other))
            if first and second and first != second and height[second] >= height[first]:
                arrows.append(f"{module} -> {other}")
    return arrows


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="fail on large circles and arrows up")
    parser.add_argument("--circles", action="store_true", help="print the files of each circle")
    arguments = parser.parse_args()
    code, whole, files = Counter(), Counter(), {}
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text()
        package = path.relative_to(SOURCE).parts[0]
        code[package] += count_lines(text)
        whole[package] += len(text.splitlines())
        files[str(path.relative_to(SOURCE))] = len(text.splitlines())
    print(f"{'package':20} {'code':>7} {'in all':>7}")
    for package, lines in code.most_common():
        print(f"{package:20} {lines:7,} {whole[package]:7,}")
    print(f"{'sum':20} {code.total():7,} {whole.total():7,}")
    long = {name: lines for name, lines in files.items() if lines > LONG}
    print(f"\n{len(long)} files of more than {LONG} lines")
    for name, lines in sorted(long.items(), key=lambda item: -item[1]):
        print(f"{name:50} {lines:5}")
    graph = grimp.build_graph("frhsic")
    circles, arrows = find_circles(graph), find_arrows_up(graph)
    sizes = ", ".join(str(len(circle)) for circle in circles) or "none"
    print(f"\nCircles of files: {sizes}")
    for circle in circles if arguments.circles else ():
        print("  " + " ".join(name.removeprefix("frhsic.") for name in circle))
    print(f"Arrows up between layers: {', '.join(arrows) or 'none'}")
    if arguments.check and (arrows or any(len(circle) > LARGEST_CIRCLE for circle in circles)):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
