"""Where the papers' theory was: its names work from here for one release (`skipscope.renamed` says where they are)."""

from skipscope.renamed import keep_old_names

keep_old_names(__name__)
