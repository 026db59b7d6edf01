"""Charts as inline SVG: pure functions from numbers to markup, styled by the page's stylesheet alone."""
