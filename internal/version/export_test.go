package version

// Of is of, for tests.
var Of = of
