package web

import (
	"log/slog"
	"net/url"

	"github.com/arbe-dev/arbe/web/transcript"
)

type app struct {
	services  services
	watches   sharedWatches
	messages  transcript.Messages
	following following
	ttys      ttys
	keyboards keyboards
	former    formerMembers
	secure    bool
	previews  *url.URL // from [Config]
	provider  string   // from [Config]
	log       *slog.Logger
}
