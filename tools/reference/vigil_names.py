"""A Sphinx extension: the search knows the members of each name, and where their sections are.
It finds the names themselves by the titles of their pages.

And pages that are not in the tree of the sidebar share one for each folder: to make it is
the longest part of making a page."""
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


trees = {}  # {(folder, options): what a page's `toctree` function returns}


def share_tree(app, page, template, context, doctree):
    if "orphan" not in app.env.metadata.get(page, {}):
        return  # its own entry is marked
    make, folder = context["toctree"], page.rpartition("/")[0]

    def tree(**options):
        key = (folder, *sorted(options.items()))
        if key not in trees:
            trees[key] = make(**options)
        return trees[key]

    context["toctree"] = tree


def setup(app):
    app.connect("html-page-context", share_tree, priority=400)  # furo comes later
    app.add_domain(NamesDomain)
    return {"parallel_read_safe": True}
