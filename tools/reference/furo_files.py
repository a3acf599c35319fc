"""What Debian's furo 2022.12 lacks, made from its own files: usage: furo_files.write(FOLDER)

Its style sheet imports another by a path of a server, and lost the rules for readers whose
system is dark; its script is in two modules, which a browser does not load from `file://`.
A furo without these faults passes unchanged.
"""
import re
from pathlib import Path

IMPORTED = re.compile(r"@import url\(/javascript/(.*?)\);\n?")
DARK = re.compile(r"body\[data-theme=\"dark\"\] \{(.*?)\}", re.S)


def style(text):
    def inlined(m):
        path = Path("/usr/share/javascript") / m[1]
        return path.read_text() + "\n" if path.is_file() else ""

    text = IMPORTED.sub(inlined, text)
    if "prefers-color-scheme" not in text and (dark := DARK.search(text)):
        text += (f"\n@media screen and (prefers-color-scheme: dark) {{\n"
                 f'body:not([data-theme="light"]) {{{dark[1]}}}\n'
                 'html body:not([data-theme="light"]) .only-light { display: none !important; }\n'
                 'body:not([data-theme="light"]) .only-dark { display: block !important; }\n}\n')
    return text


def script(text, folder):
    def inlined(m):
        return (folder / m[1]).read_text() + "\n"

    return re.sub(r"^import \w+ from \"\./([\w.-]+)\";\n", inlined, text, flags=re.M)


def write(folder):
    import furo

    theme = Path(furo.__file__).parent / "theme/furo/static"
    made = {"styles/furo.css": style((theme / "styles/furo.css").read_text()),
            "scripts/furo.js": script((theme / "scripts/furo.js").read_text(), theme / "scripts")}
    for name, text in made.items():
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
