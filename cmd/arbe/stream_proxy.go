package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/door"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/httpd"
)

func streamProxy(a *app) *cobra.Command {
	var upstream, listen string
	cmd := &cobra.Command{
		Use:   "stream-proxy --upstream URL",
		Short: "Forward requests for streams, models and git to a server",
		Long: "Forward requests for streams, models and git to a server, for sandboxes whose network reaches this machine but not\n" +
			"the server. It changes nothing, buffers nothing, and holds no secret; other paths are not found.",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			to, err := url.Parse(upstream)
			if err != nil || to.Host == "" || to.Scheme != "http" && to.Scheme != "https" || to.User != nil || to.RawQuery != "" {
				return fault.New(fault.Invalid, "--upstream is not the address of a server", "write it as --upstream https://arbe.example.com")
			}
			listener, err := net.Listen("tcp", listen)
			if err != nil {
				return fault.Newf(fault.Precondition, "stop what uses it, or set another with --listen", "cannot listen on %s", listen).Because(err)
			}
			if a.json {
				if err := a.printJSON(map[string]string{"url": "http://" + listener.Addr().String(), "upstream": upstream}); err != nil {
					return err
				}
			}
			a.say("forwarding streams, models and git from http://%s to %s; stop it with Ctrl-C", listener.Addr(), upstream)
			logger := slog.New(slog.NewTextHandler(a.err, nil))
			return forward(cmd.Context(), listener, httpd.New(door.Proxy(to, logger), httpd.Limits{}, logger))
		},
	}
	cmd.Flags().StringVar(&upstream, "upstream", "", "address of the server")
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8421", "address to listen on")
	return cmd
}

// forward serves until ctx ends.
func forward(ctx context.Context, listener net.Listener, server *http.Server) error {
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
