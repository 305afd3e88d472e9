"""A plain scatter plot as SVG text, readable on light and dark pages."""

from collections.abc import Mapping, Sequence

WIDTH, HEIGHT, LEFT, TOP = 720, 320, 56, 40
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b")


def scatter(title: str, x: str, series: Mapping[str, Sequence[float]]) -> str:
    """Plots one point per value against its index in the series; the y axis starts at zero."""
    most = max(len(values) for values in series.values())
    top = max(max(values) for values in series.values()) * 1.1
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"',
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="22" font-size="14">{title}</text>',
    ]
    for n in range(6):
        at = _y(top * n / 5, top)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - 190}" y1="{at}" y2="{at}" stroke="#dddddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{at + 4}" text-anchor="end">{top * n / 5:.1f}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH - 190) // 2}" y="{HEIGHT - 8}" text-anchor="middle">{x}</text>')
    for (name, values), colour in zip(series.items(), COLOURS, strict=False):
        row = list(series).index(name)
        for n, value in enumerate(values):
            at = LEFT + (n + 0.5) * (WIDTH - 190 - LEFT) / most
            parts.append(f'<circle cx="{at:.1f}" cy="{_y(value, top)}" r="3" fill="{colour}" fill-opacity="0.75"/>')
        parts.append(f'<circle cx="{WIDTH - 174}" cy="{TOP + 20 * row}" r="5" fill="{colour}"/>')
        parts.append(f'<text x="{WIDTH - 162}" y="{TOP + 20 * row + 4}">{name}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _y(value: float, top: float) -> float:
    return round(HEIGHT - 34 - value / top * (HEIGHT - 34 - TOP), 1)
