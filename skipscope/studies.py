"""Where the papers' studies were: their names work from here for one release (`skipscope.renamed` has the places)."""

from skipscope.renamed import keep_old_names

keep_old_names(__name__)
