drop index artifacts_by_prefix, artifacts_by_label;
