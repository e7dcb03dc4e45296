package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func artifactGet(a *app) *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "get ARTIFACT",
		Short: "Write the bytes of an artifact to stdout or into a file",
		Long: "Write the bytes of an artifact to stdout or, with --output, into a file, which is replaced completely or not\n" +
			"at all. With --json, print the record of the artifact, not its bytes.",
		Example: "  arbe artifact get 0q3v7m2k9xbd | less\n" +
			"  arbe artifact get report.pdf -o copy.pdf",
		Args:              takes(1, 1, "one artifact, by id or label"),
		ValidArgsFunction: a.proposesFirst(a.artifacts),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			id, err := a.find(ctx, c, artifactKind, "", args[0])
			if err != nil {
				return err
			}
			if a.json && path == "-" {
				return fault.New(fault.Invalid, "stdout cannot have both the JSON and the bytes", "name a file with --output, or leave out --json")
			}
			if a.json && path == "" {
				return a.showArtifact(ctx, c, id)
			}
			// Do not write to a terminal. Anyone in the house may have written the bytes, and control characters can change
			// what a terminal shows and does.
			if path == "" && isTerminal(a.out) {
				return fault.New(fault.Invalid, "the bytes of an artifact are not written to a terminal", "pipe them, as into less, or name a file with --output")
			}
			content, err := c.OpenArtifact(ctx, id, 0)
			if err != nil {
				return err
			}
			defer content.Close()
			copied := func(to io.Writer) error {
				_, err := io.Copy(to, content)
				if _, ours := errors.AsType[*os.PathError](err); ours {
					return err
				}
				return interrupted(err)
			}
			if path == "" || path == "-" {
				return unwrittenStdout(copied(a.out))
			}
			if err := writeWhole(path, copied); err != nil || !a.json {
				return err
			}
			return a.showArtifact(ctx, c, id)
		}),
	}
	cmd.Flags().StringVarP(&path, "output", "o", "", "file to write; - is stdout, even if that is a terminal")
	return cmd
}

// showArtifact prints the record of an artifact as JSON.
func (a *app) showArtifact(ctx context.Context, c *arbe.Client, id string) error {
	got, err := c.Artifacts.GetArtifact(ctx, &arbev1.GetArtifactRequest{Id: id})
	if err != nil {
		return err
	}
	return a.printJSON(viewArtifact(got.GetArtifact()))
}

// interrupted returns the error for bytes that were cut off.
func interrupted(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	return fault.New(fault.Unavailable, "the bytes were cut off", "try again").Because(err)
}
