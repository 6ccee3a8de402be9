"""Build tables, figures and the page from declarations (`tables.yaml`, `figures.yaml`)."""
