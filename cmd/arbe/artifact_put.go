package main

import (
	"context"
	"fmt"
	"io"
	"mime"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func artifactPut(a *app) *cobra.Command {
	var in place
	req := &arbev1.CreateArtifactRequest{}
	cmd := &cobra.Command{
		Use:   "put FILE",
		Short: "Store a file, or stdin, as an artifact",
		Long: "Store a file as an artifact of a thread or, without --thread, of the house; - reads stdin. An artifact of a\n" +
			"thread is deleted with the thread.",
		Example: "  arbe artifact put -t th4w7q2m9x report.pdf\n" +
			"  tar cz build | arbe artifact put - --label build.tar.gz",
		Args: takes(1, 1, "one file, or - for stdin"),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			content := a.input(ctx)
			if path := args[0]; path != "-" {
				f, err := openFile(path)
				if err != nil {
					return err
				}
				defer f.Close()
				content = f
				req.Label = first(req.Label, filepath.Base(path))
				req.MimeType = first(req.MimeType, mime.TypeByExtension(filepath.Ext(path)))
			}
			if err := in.find(ctx, a, c); err != nil {
				return err
			}
			req.Scope = &arbev1.CreateArtifactRequest_HouseId{HouseId: in.house}
			if in.thread != "" {
				req.Scope = &arbev1.CreateArtifactRequest_ThreadId{ThreadId: in.thread}
			}
			made, err := c.PutArtifact(ctx, req, io.NopCloser(content))
			if err != nil {
				return err
			}
			return a.show(made.GetId(), viewArtifact(made), func() string {
				return fmt.Sprintf("artifact %s: %s, %d bytes", made.GetId(), entry.PrintableLine(first(made.GetLabel(), made.GetKind())), made.GetSize())
			})
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&req.Id, "id", "", "an id of your choice, so that a retry creates nothing twice (a UUID, or 8 to 32 characters, a-z and 0-9)")
	flags.StringVar(&req.Kind, "kind", "", "its kind: file, screenshot, log-ref, … (default file)")
	flags.StringVar(&req.Label, "label", "", "its label (default: the file's name)")
	flags.StringVar(&req.MimeType, "type", "", "its media type, such as text/plain (default: by the file's name)")
	flags.StringVar(&req.ExternalId, "external-id", "", "its id or name elsewhere")
	flags.StringVar(&req.Metadata, "metadata", "", "a JSON object to store with it")
	a.placeFlags(cmd, &in)
	return cmd
}
