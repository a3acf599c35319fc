"""Sphinx's settings for the site; tools/reference writes the pages that they speak of."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

project = "vigil"
author = "the authors of vigil"
copyright = "the authors of vigil, BSL-1.0"
# tools/reference gives what differs from build to build.
version = release = os.environ.get("VIGIL_DOCS_VERSION", "")

extensions = ["myst_parser", "vigil_names"]
source_suffix = {".md": "markdown"}
root_doc = "index"
language = "en"
exclude_patterns = []
nitpicky = True

myst_enable_extensions = ["deflist", "html_image"]
myst_heading_anchors = 4
# A page may leave code out by `…`, which the lexer does not know.
suppress_warnings = ["misc.highlighting_failure"]

highlight_language = "text"
pygments_style = "tango"
pygments_dark_style = "monokai"

html_theme = "furo"
html_title = "vigil" + (f" {release}" if release else "")
html_static_path = ["static", os.environ["VIGIL_DOCS_STATIC"]]
html_css_files = ["vigil.css"]
html_js_files = ["vigil.js"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_use_index = False
# A page that is opened from a disk may not read another to show where a word was found.
html_show_search_summary = False
