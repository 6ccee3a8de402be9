"""What the results say: tables, figures and the page, from declarations (`tables.yaml`, `figures.yaml`)."""
