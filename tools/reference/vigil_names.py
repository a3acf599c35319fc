"""A Sphinx extension: the search knows the members of each name, and where their sections are.
It finds the names themselves by the titles of their pages."""
import json
from pathlib import Path

from sphinx.domains import Domain, ObjType

KINDS = ["function", "value", "field", "type", "enumerator"]


class NamesDomain(Domain):
    name = "vigil"
    label = "vigil"
    object_types = {kind: ObjType(kind) for kind in KINDS}

    def get_objects(self):
        path = Path(self.env.srcdir) / "names.json"
        documents = self.env.found_docs
        for name, kind, document, anchor in json.loads(path.read_text()) if path.exists() else []:
            if document in documents:
                yield name, name, kind, document, anchor, 1

    def get_type_name(self, type, primary=False):
        return type.lname

    def resolve_any_xref(self, *_):
        return []  # links are made to labels

    def get_full_qualified_name(self, node):
        return None


def setup(app):
    app.add_domain(NamesDomain)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
