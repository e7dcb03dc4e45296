package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// maxSecret limits a value, in bytes, as the server does.
const maxSecret = 64 << 10

// secretSet takes no value as an argument, because other users of the machine can read arguments, and shells keep them.
func secretSet(a *app) *cobra.Command {
	var house string
	var noCheck bool
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Set a secret, from stdin or typed",
		Long: "Set a secret of a house: a named value that the server uses for the house, such as the key of a model provider.\n" +
			"The value is read from stdin; on a terminal, arbe asks for it without showing it. No verb prints it again. A line break\n" +
			"after a single line is left out; a value of several lines is stored exactly.\n\n" +
			"A key of models (ANTHROPIC_API_KEY, OPENAI_API_KEY, OPENROUTER_API_KEY, GEMINI_API_KEY, and those of servers that the house\n" +
			"added) is tried first, which costs nothing. A wrong one changes nothing. --no-check stores it untried. So is the key of a provider\n" +
			"of sandboxes (DAYTONA_API_KEY, SPRITES_TOKEN), in whose account new sandboxes of the house are from then on: arbe sandbox accounts.\n\n" +
			"Commands receive it if their environment binds it (arbe env create --secret NAME). In the output of those, each byte of the\n" +
			"value becomes an x, unless the value has less than 6 bytes or is a common word.",
		Example: "  arbe secret set ANTHROPIC_API_KEY\n" +
			"  arbe secret set DEPLOY_KEY < ~/.ssh/deploy",
		Args: takes(1, 1, "one name, such as ANTHROPIC_API_KEY; the value comes from stdin"),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			in, err := a.inHouse(ctx, c, house)
			if err != nil {
				return err
			}
			value, err := a.secretValue(ctx, args[0])
			if err != nil {
				return err
			}
			set, err := c.Secrets.SetSecret(ctx, &arbev1.SetSecretRequest{HouseId: in, Name: args[0], Value: value, SkipCheck: noCheck})
			if err != nil {
				return err
			}
			view := setSecretView{viewSecret(set.GetSecret()), set.GetCreated(), viewCheck(set.GetCheck())}
			if err := a.show(view.Name, view, func() string { return view.Check.after("set " + view.Name) }); err != nil {
				return err
			}
			if !view.Redacted {
				a.say("warning: the value is too short or too common to be redacted in output; choose a longer one if you can")
			}
			return nil
		}),
	}
	a.houseFlag(cmd, &house)
	noCheckFlag(cmd, &noCheck, "store a key without trying it")
	cmd.ValidArgsFunction = a.proposesFirst(a.secretNames)
	return cmd
}

// secretValue reads a value from a terminal or from stdin.
func (a *app) secretValue(ctx context.Context, name string) ([]byte, error) {
	var value string
	if isTerminal(a.in) && isTerminal(a.err) {
		typed, err := a.askHidden(ctx, "value of %s (not shown): ", entry.PrintableLine(name))
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		value = strings.TrimSpace(typed)
	} else {
		text, err := io.ReadAll(io.LimitReader(a.input(ctx), maxSecret+2))
		if err != nil {
			return nil, fault.New(fault.Invalid, "the value cannot be read", "give it on stdin").Because(err)
		}
		value = string(text)
		if line := strings.TrimSuffix(strings.TrimSuffix(value, "\n"), "\r"); !strings.Contains(line, "\n") {
			value = line
		}
	}
	switch {
	case value == "":
		return nil, fault.New(fault.Invalid, "there is no value", fmt.Sprintf("give it on stdin: arbe secret set %s < file", entry.PrintableLine(name)))
	case len(value) > maxSecret:
		return nil, fault.New(fault.Invalid, "the value has more than 64 KiB", "store larger values as artifacts")
	}
	return []byte(value), nil
}

type setSecretView struct {
	secretView
	Created bool       `json:"created"`
	Check   *checkView `json:"check,omitempty"`
}
