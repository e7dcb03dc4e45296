package web

import "log/slog"

type app struct {
	services  services
	watches   sharedWatches
	following following
	former    formerMembers
	secure    bool
	log       *slog.Logger
}
