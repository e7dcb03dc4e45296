package main

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// hitView is an entry that a search found, as JSON.
type hitView struct {
	ThreadID   string    `json:"thread_id"`
	ThreadName string    `json:"thread_name"`
	Seq        int64     `json:"seq"`
	ID         string    `json:"id"`
	Type       string    `json:"type"`
	AuthorID   string    `json:"author_agent_id"`
	AuthorName string    `json:"author_name"`
	Snippet    string    `json:"snippet"`
	WrittenAt  time.Time `json:"written_at"`
}

func search(a *app) *cobra.Command {
	var house string
	var limit int32
	cmd := &cobra.Command{
		Use:   "search WORD…",
		Short: "Search the messages and commands of a house",
		Long: "Search the messages, answers, commands and command output of a house, latest first. An entry must have all words; it\n" +
			"has a word if one of its words begins with it. Filters between the words narrow the search:\n\n" +
			"  from:ann from:@arbe from:me   who wrote it\n" +
			"  in:THREAD                     a thread, by its id or name\n" +
			"  type:message                  message, answer, command or output\n" +
			"  is:failed                     the output of commands that failed\n" +
			"  after:2026-01-31 before:…     only entries from this time",
		Example: "  arbe search deploy from:ann\n" +
			"  arbe search 'connection refused' is:failed after:2026-01-01",
		Args: takes(1, math.MaxInt, "words to search for"),
		RunE: a.calls(func(ctx context.Context, c *arbe.Client, args []string) error {
			in, err := a.inHouse(ctx, c, house)
			if err != nil {
				return err
			}
			found, err := c.Entries.Search(ctx, &arbev1.SearchRequest{HouseId: in, Query: strings.Join(args, " "), PageSize: limit})
			if err != nil {
				return err
			}
			rows := make([]row, len(found.GetHits()))
			for i, h := range found.GetHits() {
				v := hitView{h.GetThreadId(), h.GetThreadName(), h.GetSeq(), h.GetEntryId(), h.GetType(), h.GetAuthorAgentId(), h.GetAuthorName(), h.GetSnippet(), h.GetWrittenAt().AsTime()}
				rows[i] = row{v.ThreadID, v, []string{fmt.Sprintf("%s#%d", v.ThreadID, v.Seq), first(v.ThreadName, "untitled"), first(v.AuthorName, "arbe"), a.when(v.WrittenAt), v.Snippet}}
			}
			for _, t := range found.GetThreads() {
				a.say("the thread %s is named %s", t.GetThreadId(), entry.PrintableLine(t.GetName()))
			}
			if n := found.GetPending(); n > 0 {
				a.say("%d new entries cannot be found yet", n)
			}
			if len(rows) == 0 {
				a.say("no entry was found")
			}
			return a.list([]string{"ENTRY", "THREAD", "AUTHOR", "WRITTEN", "TEXT"}, rows)
		}),
	}
	a.houseFlag(cmd, &house)
	cmd.Flags().Int32Var(&limit, "limit", 20, "how many entries to list, at most 100")
	return cmd
}
