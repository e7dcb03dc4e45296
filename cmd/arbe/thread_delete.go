package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// threadDelete deletes a thread. It takes no default thread: what cannot be undone is named.
func threadDelete(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete ID",
		Short: "Delete a thread with its log and its children",
		Long: "Delete a thread with its log and its children; its forks stay whole. This cannot be undone.\n" +
			"Deleting one that is gone succeeds. It asks first when a person types; a script is not asked.",
		Args:              takes(1, 1, "the id of one thread"),
		ValidArgsFunction: a.proposesFirst(a.threads),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			id := args[0]
			if !yes && isTerminal(a.in) && isTerminal(a.err) && !a.agrees(fmt.Sprintf("delete thread %s with its log and its children?", id)) {
				return fault.New(fault.Canceled, "nothing was deleted", "answer y, or pass --yes")
			}
			if _, err := c.Threads.DeleteThread(ctx, &arbev1.DeleteThreadRequest{Id: id}); err != nil {
				return err
			}
			view := struct {
				ID      string `json:"id"`
				Deleted bool   `json:"deleted"`
			}{id, true}
			return a.show(id, view, func() string { return "deleted " + id })
		}),
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// agrees asks the person a question that only y answers.
func (a *app) agrees(question string) bool {
	fmt.Fprint(a.err, question+" [y/N] ")
	answer, _ := bufio.NewReader(a.in).ReadString('\n')
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}
