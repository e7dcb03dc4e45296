package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func say(a *app) *cobra.Command { return a.speaking("say", "arbe say") }

// speaking returns a verb that says something in a thread. line is the command line of the verb, for the examples.
func (a *app) speaking(name, line string) *cobra.Command {
	var f sayFlags
	cmd := &cobra.Command{
		Use:   name + " [THREAD] TEXT",
		Short: "Say something in a thread, or run a command there",
		Long: "Say something in a thread. TEXT is Markdown; - reads it from stdin. THREAD\n" +
			"defaults to $ARBE_THREAD. It may be the @handle of a bot or a person: then TEXT is said in your direct message to them,\n" +
			"which arbe creates the first time. Only its people see it in lists; everyone in the house who has its id may read it.\n\n" +
			"A TEXT that begins with ! or /run is a command for the thread's sandbox, unless --literal is given.\n" +
			"/think LEVEL at its beginning, or after mentions, sets how hard the answering bots think: " + entry.EffortWords + ".\n" +
			"Any other word after a slash, such as /shrug, is refused; //shrug says /shrug.\n" +
			"The output of a command appears in the thread; arbe x prints it here.\n\n" +
			"A coding agent that takes messages while it works gets TEXT at once. With --queue, it gets TEXT after its current work;\n" +
			"arbe thread queue send changes that. For any other coding agent, TEXT is always the next prompt.\n\n" +
			"--file sends a file with it; it becomes an artifact of the thread, and commands find it in ~/files.\n" +
			"Models with vision see images.\n\n" +
			"--edit changes your last message in the thread to TEXT, and --delete deletes it. A bot that was asked is not asked again.",
		Example: "  " + line + " th4w7q2m9x 'the build is red'\n" +
			"  " + line + " th4w7q2m9x '/run make test'\n" +
			"  " + line + " @arbe 'what is new?'\n" +
			"  " + line + " @arbe 'what is wrong here?' --file screenshot.png\n" +
			"  git log -3 | " + line + " th4w7q2m9x --literal -\n" +
			"  " + line + " th4w7q2m9x --edit 'the build is green'",
		Args: func(cmd *cobra.Command, args []string) error {
			if f.remove {
				return takes(0, 1, "one thread")(cmd, args)
			}
			return takes(1, 2, "a thread and a text")(cmd, args)
		},
		ValidArgsFunction: a.proposesFirst(a.threadsAndBots),
		RunE:              a.calls(func(ctx context.Context, c *arbe.Client, args []string) error { return f.say(ctx, a, c, args) }),
	}
	cmd.Flags().StringVar(&f.req.Id, "id", "", "an id of your choice for the entry, so that a retry writes nothing twice")
	cmd.Flags().StringVar(&f.req.ReplyTo, "reply-to", "", "id of the entry that this answers")
	cmd.Flags().BoolVar(&f.req.Literal, "literal", false, "say TEXT literally, even if it looks like a command")
	cmd.Flags().BoolVar(&f.req.Queue, "queue", false, "let it wait until the thread's coding agent has finished its current work")
	filesFlag(cmd, &f.paths)
	cmd.Flags().BoolVar(&f.another, "new", false, "with a @handle, begin a new direct message")
	cmd.Flags().BoolVar(&f.edit, "edit", false, "change your last message to TEXT instead")
	cmd.Flags().BoolVar(&f.remove, "delete", false, "delete your last message instead")
	destroys(cmd, &f.yes, "delete")
	cmd.MarkFlagsMutuallyExclusive("edit", "delete")
	for _, other := range []string{"reply-to", "literal", "queue", "file", "new"} {
		cmd.MarkFlagsMutuallyExclusive("edit", other)
		cmd.MarkFlagsMutuallyExclusive("delete", other)
	}
	return cmd
}

// sayFlags holds the flags of a verb that says something.
type sayFlags struct {
	req     arbev1.SayRequest
	paths   []string
	another bool
	// edit and remove change the last message.
	edit, remove bool
	// yes deletes without a question.
	yes bool
}

// revise changes or deletes the caller's last message in the thread of the arguments, and prints its position.
func (f *sayFlags) revise(ctx context.Context, a *app, c *arbe.Client, args []string) (err error) {
	text, word := "", "deleted"
	if !f.remove {
		if text, err = a.text(ctx, args[len(args)-1]); err != nil {
			return err
		}
		args, word = args[:len(args)-1], "edited"
	}
	thread, err := a.threadID(ctx, c, firstOf(args))
	if err != nil {
		return err
	}
	var e *arbev1.Entry
	if f.remove {
		if err := a.confirm(ctx, f.yes, "Delete your last message in thread %s?", thread); err != nil {
			return err
		}
		var res *arbev1.DeleteResponse
		res, err = c.Entries.Delete(ctx, &arbev1.DeleteRequest{ThreadId: thread, Id: f.req.Id})
		e = res.GetEntry()
	} else {
		var res *arbev1.EditResponse
		res, err = c.Entries.Edit(ctx, &arbev1.EditRequest{ThreadId: thread, Id: f.req.Id, Text: text})
		e = res.GetEntry()
	}
	if err != nil {
		return err
	}
	return a.show(e.GetId(), export.ViewEntry(e), func() string { return fmt.Sprintf("%s entry %d of thread %s", word, e.GetSeq(), thread) })
}

// say says the text of the arguments in their thread, and prints the position of the entry.
func (f *sayFlags) say(ctx context.Context, a *app, c *arbe.Client, args []string) (err error) {
	if f.edit || f.remove {
		return f.revise(ctx, a, c, args)
	}
	req, thread := &f.req, ""
	if len(args) == 2 {
		thread, args = args[0], args[1:]
	}
	if req.Text, err = a.text(ctx, args[0]); err != nil {
		return err
	}
	if err := (entry.Chat{Text: req.Text, ReplyTo: req.ReplyTo}).Validate(); err != nil && (req.Text != "" || len(f.paths) == 0) {
		return err
	}
	if _, isCommand := entry.ParseCommand(req.Text); isCommand && !req.Literal && len(f.paths) > 0 {
		return fault.New(fault.Invalid, "a command cannot have files", "say it with --literal, or leave out --file")
	}
	files, err := filesAt(f.paths)
	if err != nil {
		return err
	}
	if !utf8.ValidString(req.Text) {
		return fault.New(fault.Invalid, "text: it is not valid UTF-8", "send it as UTF-8 text")
	}
	// Do this last, so that a refused text begins no direct message.
	if strings.HasPrefix(thread, "@") {
		req.ThreadId, err = a.directMessage(ctx, c, thread, f.another)
	} else {
		req.ThreadId, err = a.threadID(ctx, c, thread)
	}
	if err != nil {
		return err
	}
	if req.AttachmentIds, err = c.Attach(ctx, req.ThreadId, req.Id, files); err != nil {
		return err
	}
	said, err := c.Entries.Say(ctx, req)
	if err != nil {
		return err
	}
	e := said.GetEntry()
	return a.show(e.GetId(), export.ViewEntry(e), func() string {
		what := "entry"
		if said.GetResultId() != "" {
			what = "command"
		}
		return fmt.Sprintf("%s %d of thread %s", what, e.GetSeq(), req.GetThreadId())
	})
}

// directMessage returns the id of the caller's direct message to a bot or a person. It creates one the first time, and
// whenever a new one is requested.
func (a *app) directMessage(ctx context.Context, c *arbe.Client, handle string, another bool) (string, error) {
	req := arbev1.CreateThreadRequest{Reuse: !another}
	if err := a.place(ctx, c, handle, &req); err != nil {
		return "", err
	}
	created, err := c.Threads.CreateThread(ctx, &req)
	return created.GetThread().GetId(), err
}

// text returns the argument or, if that is -, stdin. It reads one byte more of stdin than an entry may have, so that a longer
// text is refused and not cut.
func (a *app) text(ctx context.Context, arg string) (string, error) {
	if arg != "-" {
		return arg, nil
	}
	read, err := io.ReadAll(io.LimitReader(a.input(ctx), entry.MaxText+1))
	if err != nil {
		return "", fault.New(fault.Internal, "cannot read stdin", "check what is piped into arbe").Because(err)
	}
	return string(read), nil
}
