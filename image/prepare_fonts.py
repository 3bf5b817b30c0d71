"""Make matplotlib's font list once, at image build time.

    <image>/venv/bin/python prepare_fonts.py OUT_DIR

writes OUT_DIR/fontlist-v<version>.json, the file that matplotlib would otherwise rebuild in every sandbox, and prints its
path. A sandbox links it into its fresh, writable MPLCONFIGDIR. Matplotlib's own fonts are stored relative to its
data folder; the host's are absolute, and stay valid because the image shows /usr at the same place.

Two changes to what matplotlib finds:

- Fonts outside /usr are left out: no sandbox can see them.
- Names that generated code asks for, and that no free system has, become aliases of Noto Sans CJK SC, which covers Latin,
  Chinese, Japanese and Korean. Without it `font.sans-serif = ["SimHei"]` or seaborn's theme (Arial first) draw boxes
  and print a warning for every label. A font that is really installed under such a name is left alone.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
from pathlib import Path

FALLBACK = "Noto Sans CJK SC"
ALIASES = (
    "SimHei",
    "SimSun",
    "KaiTi",
    "FangSong",
    "Microsoft YaHei",
    "PingFang SC",
    "Heiti SC",
    "STHeiti",
    "Hiragino Sans GB",
    "Source Han Sans SC",
    "Source Han Sans CN",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "Arial Unicode MS",
    "Arial",
)


def visible(path: str) -> bool:
    """Whether a sandbox of this image can open the font."""
    return not os.path.isabs(path) or path.startswith("/usr/")


def main(out: Path) -> int:
    """Write the font list below `out`; 1 when the fallback font is missing."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        # An empty home: the builder's own fonts and settings must not leak into the image.
        os.environ.update(HOME=scratch, XDG_DATA_HOME=scratch, XDG_CONFIG_HOME=scratch, MPLCONFIGDIR=scratch)
        os.environ.pop("MATPLOTLIBRC", None)
        os.chdir(scratch)
        from matplotlib import font_manager

        fonts = font_manager.fontManager
        own = os.fspath(Path(font_manager.__file__).parent) + os.sep
        fonts.ttflist = [f for f in fonts.ttflist if f.fname.startswith(own) or visible(f.fname)]
        fonts.afmlist = [f for f in fonts.afmlist if f.fname.startswith(own) or visible(f.fname)]
        faces = [f for f in fonts.ttflist if f.name == FALLBACK]
        if not faces:
            print(f"no font named {FALLBACK!r} below /usr (Debian: fonts-noto-cjk)", file=sys.stderr)
            return 1
        taken = {f.name for f in fonts.ttflist}
        for alias in ALIASES:
            if alias not in taken:
                fonts.ttflist += [dataclasses.replace(face, name=alias) for face in faces]
        # The name that this matplotlib looks for; atomic, so that a build that dies leaves no half file.
        name = f"fontlist-v{font_manager.FontManager.__version__}.json"
        part = out / f".{name}.part"
        font_manager.json_dump(fonts, part)
        if font_manager.json_load(part)._version != font_manager.FontManager.__version__:
            print("the font list does not read back", file=sys.stderr)
            return 1
        os.chmod(part, 0o644)
        os.replace(part, out / name)
    print(out / name)
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: prepare_fonts.py OUT_DIR")
    sys.exit(main(Path(sys.argv[1]).absolute()))
