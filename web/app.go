package web

import (
	"log/slog"
	"net/url"
)

type app struct {
	services  services
	watches   sharedWatches
	following following
	former    formerMembers
	secure    bool
	previews  *url.URL // from [Config]
	log       *slog.Logger
}
