"""A Sphinx extension: the search knows each public name, and where its section is."""
import json
from pathlib import Path

from sphinx.domains import Domain, ObjType

KINDS = ["class", "function", "alias", "value", "concept", "enumeration", "field", "type", "enumerator", "header"]


class NamesDomain(Domain):
    name = "vigil"
    label = "vigil"
    object_types = {kind: ObjType(kind) for kind in KINDS}

    def get_objects(self):
        path = Path(self.env.srcdir) / "names.json"
        documents = self.env.found_docs
        for name, kind, document, anchor in json.loads(path.read_text()) if path.exists() else []:
            if document in documents:
                # Names of the library come before members, and these before words of pages.
                priority = 0 if name.count("::") < 2 and kind in ("class", "function") else 1
                yield name, name, kind, document, anchor, priority

    def resolve_any_xref(self, *_):
        return []  # links are made to labels

    def get_full_qualified_name(self, node):
        return None


def setup(app):
    app.add_domain(NamesDomain)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
