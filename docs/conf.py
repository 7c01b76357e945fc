"""The site: sphinx-build -W --keep-going docs build/site (works offline)."""

import sys
from pathlib import Path

import frhsic

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "frhsic"
author = copyright = "The frhsic developers"  # noqa: A001
version = release = frhsic.__version__

extensions = [
    "frhsic_pages",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_ext", "_templates", "reference/datasets/_figures.py", "**/README.md"]
suppress_warnings = ["config.cache"]  # the gallery's order is a class
smartquotes = False  # "--query" is an option, not a dash

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "html_image"]
myst_heading_anchors = 4
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

autosummary_generate = True
autodoc_typehints = "none"  # numpydoc's Parameters say it in words
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

html_theme = "pydata_sphinx_theme"
html_title = "frhsic"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "navigation_with_keys": False,
    "use_edit_page_button": False,
}
html_sidebars = {"index": []}

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "examples",
    "filename_pattern": r"/(0[1-8]|1[0-6])_",  # the others need several processes, or another package
    "ignore_pattern": r"__init__\.py",
    "within_subsection_order": "FileNameSortKey",
    "default_thumb_file": str(Path(__file__).parent / "figures" / "frontier-adult.png"),
    "show_signature": False,
    "download_all_examples": False,
    "remove_config_comments": True,
    "reset_argv": "frhsic_pages.no_arguments",
    "abort_on_example_error": True,
}
