# ruff: noqa: PLC0415  (heavy libraries are imported where they are needed)
"""The fonts of the generator: where they come from, under which licence, and how they are cut down to travel.

    python -m demo_model.fonts OUT_DIR

fetches the Debian packages below (nothing is installed) and keeps the characters that the generator can draw.
Fonts are never part of the package; pictures drawn with them are. Without the folder the generator falls back to
the font inside Pillow, which is enough for tests (it has no Chinese glyphs).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DEFAULT_FOLDER: Final = Path(__file__).parent / ".fonts"


@dataclass(frozen=True)
class Face:
    name: str
    package: str
    file: str
    licence: str
    chinese: bool = False
    held: bool = False
    index: int = 0


_OFL, _APACHE, _GPL = "SIL OFL 1.1", "Apache-2.0", "GPL with font exception"
FACES: Final = (
    Face("DejaVuSans", "fonts-dejavu-core", "DejaVuSans.ttf", "Bitstream Vera"),
    Face("DejaVuSans-Bold", "fonts-dejavu-core", "DejaVuSans-Bold.ttf", "Bitstream Vera"),
    Face("DejaVuSansMono", "fonts-dejavu-core", "DejaVuSansMono.ttf", "Bitstream Vera"),
    Face("DejaVuSerif", "fonts-dejavu-core", "DejaVuSerif.ttf", "Bitstream Vera"),
    Face("LiberationSans", "fonts-liberation2", "LiberationSans-Regular.ttf", _OFL),
    Face("LiberationSans-Bold", "fonts-liberation2", "LiberationSans-Bold.ttf", _OFL),
    Face("LiberationSerif", "fonts-liberation2", "LiberationSerif-Regular.ttf", _OFL),
    Face("LiberationMono", "fonts-liberation2", "LiberationMono-Regular.ttf", _OFL),
    Face("Roboto", "fonts-roboto-unhinted", "Roboto-Regular.ttf", _APACHE),
    Face("Roboto-Medium", "fonts-roboto-unhinted", "Roboto-Medium.ttf", _APACHE),
    Face("Lato", "fonts-lato", "Lato-Regular.ttf", _OFL),
    Face("Lato-Bold", "fonts-lato", "Lato-Bold.ttf", _OFL),
    Face("OpenSans", "fonts-open-sans", "OpenSans-Regular.ttf", _APACHE),
    Face("FreeSans", "fonts-freefont-ttf", "FreeSans.ttf", _GPL),
    Face("FreeSerif", "fonts-freefont-ttf", "FreeSerif.ttf", _GPL),
    Face("FreeMono", "fonts-freefont-ttf", "FreeMonoBold.ttf", _GPL),
    Face("FiraCode", "fonts-firacode", "FiraCode-Regular.ttf", _OFL),
    Face("Carlito", "fonts-crosextra-carlito", "Carlito-Regular.ttf", _OFL),
    Face("EBGaramond", "fonts-ebgaramond", "EBGaramond12-Bold.otf", _OFL),
    Face("Inter", "fonts-inter", "Inter-Regular.otf", _OFL),
    Face("Inter-SemiBold", "fonts-inter", "Inter-SemiBold.otf", _OFL),
    Face("NimbusSansNarrow", "fonts-urw-base35", "NimbusSansNarrow-Bold.otf", "AGPL with font exception"),
    Face("URWGothic", "fonts-urw-base35", "URWGothic-Book.otf", "AGPL with font exception"),
    Face("URWBookman", "fonts-urw-base35", "URWBookman-Light.otf", "AGPL with font exception"),
    Face("NimbusMono", "fonts-urw-base35", "NimbusMonoPS-Bold.otf", "AGPL with font exception"),
    Face("Cantarell", "fonts-cantarell", "Cantarell-Regular.otf", _OFL),
    Face("Quicksand", "fonts-quicksand", "Quicksand-Medium.ttf", _OFL),
    Face("Play", "fonts-play", "Play-Regular.otf", _OFL),
    Face("Gentium", "fonts-sil-gentiumplus", "GentiumPlus-Regular.ttf", _OFL),
    Face("Inconsolata", "fonts-inconsolata", "Inconsolata.otf", _OFL),
    Face("Mplus1", "fonts-mplus", "Mplus1-Regular.otf", _OFL),
    Face("AnonymousPro", "fonts-anonymous-pro", "Anonymous Pro.ttf", _OFL),
    Face("Hack", "fonts-hack", "Hack-Regular.ttf", "MIT and Bitstream Vera"),
    Face("LinLibertine", "fonts-linuxlibertine", "LinLibertine_R.otf", _OFL),
    Face("LinLibertine-Bold", "fonts-linuxlibertine", "LinLibertine_RB.otf", _OFL),
    Face("LinBiolinum", "fonts-linuxlibertine", "LinBiolinum_R.otf", _OFL),
    Face("Comfortaa", "fonts-comfortaa", "Comfortaa-Regular.ttf", _OFL),
    Face("CourierPrime", "fonts-courier-prime", "Courier Prime.otf", _OFL, held=True),
    Face("Cabin", "fonts-cabin", "Cabin-Regular.otf", _OFL, held=True),
    Face("Caladea", "fonts-crosextra-caladea", "Caladea-Regular.ttf", _APACHE, held=True),
    Face("JetBrainsMono", "fonts-jetbrains-mono", "JetBrainsMono-Regular.ttf", _OFL, held=True),
    Face("P052", "fonts-urw-base35", "P052-Roman.otf", "AGPL with font exception", held=True),
    Face("Arimo-Bold", "fonts-croscore", "Arimo-Bold.ttf", _APACHE, held=True),
    Face("NotoSansCJK", "fonts-noto-cjk", "NotoSansCJK-Regular.ttc", _OFL, chinese=True, index=2),
    Face("NotoSansCJK-Bold", "fonts-noto-cjk", "NotoSansCJK-Bold.ttc", _OFL, chinese=True, index=2),
    Face("NotoSerifCJK", "fonts-noto-cjk", "NotoSerifCJK-Regular.ttc", _OFL, chinese=True, index=2),
    Face("ZenHei", "fonts-wqy-zenhei", "wqy-zenhei.ttc", _GPL, chinese=True),
    Face("UMing", "fonts-arphic-uming", "uming.ttc", "Arphic Public License", chinese=True),
    Face("GBSong", "fonts-arphic-gbsn00lp", "gbsn00lp.ttf", "Arphic Public License", chinese=True),
    Face("WenKai", "fonts-lxgw-wenkai", "LXGWWenKai-Regular.ttf", _OFL, chinese=True),
    Face("WenKai-Light", "fonts-lxgw-wenkai", "LXGWWenKai-Light.ttf", _OFL, chinese=True),
    Face("WenKai-Bold", "fonts-lxgw-wenkai", "LXGWWenKai-Bold.ttf", _OFL, chinese=True),
    Face("MicroHei", "fonts-wqy-microhei", "wqy-microhei.ttc", _GPL, chinese=True, held=True),
    Face("NotoSerifCJK-Bold", "fonts-noto-cjk", "NotoSerifCJK-Bold.ttc", _OFL, chinese=True, held=True, index=2),
    Face("UKai", "fonts-arphic-ukai", "ukai.ttc", "Arphic Public License", chinese=True, held=True),
)


def characters() -> str:
    """Printable ASCII, and every other character that stands in the generator's sources."""
    found = {chr(code) for code in range(32, 127)}
    for path in Path(__file__).parent.glob("*.py"):
        found.update(char for char in path.read_text(encoding="utf-8") if ord(char) > 126)
    return "".join(sorted(found))


def _fetch(packages: set[str], folder: Path) -> None:
    for package in sorted(packages):
        subprocess.run(["apt-get", "download", "-qq", package], cwd=folder, check=True)
    for archive in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", archive.name, "root"], cwd=folder, check=True)


def build(out: Path, source: Path | None = None) -> None:
    from fontTools import subset  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from fontTools.ttLib import TTFont  # type: ignore[import-not-found, import-untyped, unused-ignore]

    with tempfile.TemporaryDirectory() as scratch:
        if source is None:
            _fetch({face.package for face in FACES}, Path(scratch))
            source = Path(scratch) / "root"
        files = {path.name: path for path in source.rglob("*") if path.is_file()}
        out.mkdir(parents=True, exist_ok=True)
        for face in FACES:
            path = files.get(face.file)
            if path is None:
                raise SystemExit(f"{face.package} has no {face.file}")
            options = subset.Options(hinting=False, layout_features=[], drop_tables=["GSUB", "GPOS", "GDEF", "kern"])
            font = TTFont(path, fontNumber=face.index, lazy=True)
            missing = [char for char in map(chr, range(33, 127)) if ord(char) not in font.getBestCmap()]
            if missing:  # would be drawn as nothing, while the answers name it: a lesson in making things up
                raise SystemExit(f"{face.file} cannot draw {''.join(missing)}")
            cutter = subset.Subsetter(options)
            cutter.populate(text=characters())
            cutter.subset(font)
            font.save(out / f"{face.name}.{'otf' if 'CFF ' in font else 'ttf'}")


def main() -> None:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_FOLDER
    build(out, Path(sys.argv[2]) if len(sys.argv) > 2 else None)
    print(f"{out}: {sum(path.stat().st_size for path in out.iterdir()) / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
