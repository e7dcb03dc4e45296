package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// threadEntriesCreate says something in a thread.
func threadEntriesCreate(a *app) *cobra.Command {
	var chat entry.Chat
	var id string
	cmd := &cobra.Command{
		Use:   "create [ID] TEXT",
		Short: "Say something in a thread",
		Long: "Say something in a thread. TEXT is Markdown; - reads it from stdin. Without an ID it is the\n" +
			"thread in $ARBE_THREAD.",
		Example: "  arbe thread entries create th4w7q2m9x 'the build is red'\n" +
			"  git log -3 | arbe thread entries create th4w7q2m9x -",
		Args:              takes(1, 2, "a thread and a text"),
		ValidArgsFunction: a.proposesFirst(a.threads),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) (err error) {
			thread := ""
			if len(args) == 2 {
				thread, args = args[0], args[1:]
			}
			if thread, err = a.theThread(thread); err != nil {
				return err
			}
			if chat.Text, err = a.text(args[0]); err != nil {
				return err
			}
			if err := chat.Validate(); err != nil {
				return err
			}
			// JSON would put marks in place of what is not text, and nobody would know.
			if !utf8.ValidString(chat.Text) {
				return fault.New(fault.Invalid, "text: it is not valid UTF-8", "send it as UTF-8 text")
			}
			var payload strings.Builder
			if err := encodeJSON(&payload, chat); err != nil {
				return err
			}
			written, err := c.Entries.Append(ctx, &arbev1.AppendRequest{ThreadId: thread, Id: id, Type: chat.Type(), Payload: strings.TrimSuffix(payload.String(), "\n")})
			if err != nil {
				return err
			}
			e := written.GetEntry()
			return a.show(e.GetId(), viewEntry(e), func() string { return fmt.Sprintf("entry %d of thread %s", e.GetSeq(), thread) })
		}),
	}
	cmd.Flags().StringVar(&id, "id", "", "your own id for the entry, so that a repeat writes nothing")
	cmd.Flags().StringVar(&chat.ReplyTo, "reply-to", "", "id of the entry that this answers")
	return cmd
}

// text is what an argument says, or what stdin holds when the argument is -. Of a stdin that is too long
// for any entry it is just enough to be refused.
func (a *app) text(arg string) (string, error) {
	if arg != "-" {
		return arg, nil
	}
	read, err := io.ReadAll(io.LimitReader(a.in, entry.MaxText+1))
	if err != nil {
		return "", fault.New(fault.Internal, "cannot read stdin", "check what is piped into arbe").Because(err)
	}
	return string(read), nil
}
