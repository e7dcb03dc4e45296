package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/arbe-dev/arbe/internal/fault"
)

// help prints the help for a verb or a topic. It replaces cobra's help command, which answers an unknown topic with success.
func help(root *cobra.Command) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:               "help [VERB…]",
		Short:             "Show help for a verb or a topic",
		ValidArgsFunction: completeVerb,
		RunE: func(_ *cobra.Command, args []string) error {
			about, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return fault.Newf(fault.Invalid, "see the verbs and topics with: arbe help", "there is no help about %q", strings.Join(args, " "))
			}
			return showHelp(about, all)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "show help for all verbs and topics below it, too")
	return cmd
}

// completeVerb proposes the verbs below those that were typed.
func completeVerb(cmd *cobra.Command, args []string, _ string) (found []cobra.Completion, _ cobra.ShellCompDirective) {
	about, rest, err := cmd.Root().Find(args)
	if err != nil || len(rest) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, c := range about.Commands() {
		if !c.Hidden {
			found = append(found, cobra.CompletionWithDesc(c.Name(), c.Short))
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// showHelp prints the help of a command and, if all is set, of the commands below it.
func showHelp(about *cobra.Command, all bool) error {
	about.InitDefaultHelpFlag() // adds --help to the flags
	err := about.Help()
	for _, c := range about.Commands() {
		if err == nil && all && !c.Hidden {
			err = showHelp(c, all)
		}
	}
	return err
}

// helpView is the help for a verb, a group of verbs or a topic, as JSON.
type helpView struct {
	Name    string     `json:"name"` // with the verbs above it: "arbe thread list"
	Usage   string     `json:"usage,omitempty"`
	Short   string     `json:"short"`
	Long    string     `json:"long,omitempty"`
	Example string     `json:"example,omitempty"`
	Flags   []flagView `json:"flags,omitempty"`
	Verbs   []verbView `json:"verbs,omitempty"`
	Topics  []verbView `json:"topics,omitempty"`
}

type flagView struct {
	Name    string `json:"name"`
	Short   string `json:"short,omitempty"` // one letter
	Type    string `json:"type"`
	Default string `json:"default,omitempty"`
	Usage   string `json:"usage"`
}

type verbView struct {
	Name  string `json:"name"`
	Short string `json:"short"`
}

func viewHelp(cmd *cobra.Command) helpView {
	view := helpView{Name: cmd.CommandPath(), Short: cmd.Short, Long: cmd.Long, Example: cmd.Example}
	if cmd.Runnable() {
		view.Usage = cmd.UseLine()
		see := func(f *pflag.Flag) {
			if !f.Hidden {
				view.Flags = append(view.Flags, flagView{f.Name, f.Shorthand, f.Value.Type(), f.DefValue, f.Usage})
			}
		}
		cmd.LocalFlags().VisitAll(see)
		cmd.InheritedFlags().VisitAll(see)
	}
	for _, c := range cmd.Commands() {
		switch about := (verbView{c.Name(), c.Short}); {
		case c.IsAdditionalHelpTopicCommand():
			view.Topics = append(view.Topics, about)
		case c.IsAvailableCommand() || c.Name() == "help":
			view.Verbs = append(view.Verbs, about)
		}
	}
	return view
}

// The topics are help pages without a verb: "arbe help exit-codes".

func exitCodesTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "The exit codes of arbe",
		Long: `arbe exits with

    0    it worked
    1    anything else went wrong
    2    the command line or the request is wrong
    3    it does not exist, or it belongs to another house
    4    you are not logged in
    5    you are not allowed to
    6    something else must be done first, or someone else changed the same thing
    7    the server, or a part it needs, cannot be reached or takes too long
    8    a limit is reached (size, rate, disk)
  130    Ctrl-C, or the command was cancelled
  143    SIGTERM

Verbs that run until someone stops them (up, serve, stream-proxy, port) then exit with 0.

arbe x exits with the exit code of the command; 124 means that the command ran out of
time, 128+n that signal n ended it. It exits with 125 when the command did not run, nobody knows how it ended, or
part of its output could not be read or written here. When arbe could not start the command at all, it exits with
a code above, and stderr says so. arbe attach and arbe wait exit as arbe x does.

arbe ask exits with 0 when the bot has answered. When it has asked the bot and gets no answer, it exits with

   10    the bot failed; stderr says why
   11    someone stopped the bot
   12    a limit of the bot is reached, or the model's provider wants money
   13    the bot did not answer: its policies did not wake it, it did not begin, or its model said nothing
   14    the connection to the server is lost; the bot continues, and arbe thread entries read shows the answer
  130    Ctrl-C, which stops the bot, as SIGTERM does with 143
  141    the reader of the answer went away, which stops the bot

When it could not ask the bot, it exits with one of the codes at the top.

arbe run, arbe thread result, arbe thread resume --follow, and arbe thread entries read of a thread that a coding agent
drives exit with 0 when the agent has completed its task, with 10 when it failed, and with 11 when someone stopped it. If
the agent is still at work, arbe thread result exits with 0. arbe thread diagnose exits with 2 when the run failed, and with 3 when nothing happens although
it should.

arbe env diagnose exits with 10 when the environment cannot build a sandbox.`,
	}
}

func environmentTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "environment",
		Short: "The environment variables that arbe reads",
		Long: `  ARBE_HOST        address of the server, such as http://127.0.0.1:8420
  ARBE_TOKEN       API key or thread token to log in with
  ARBE_PROFILE     profile to use; local is the server of this machine
  ARBE_HOUSE       house to work in when you are in several
  ARBE_THREAD      thread to work on when a verb names none
  ARBE_DATA_DIR    data directory of a server on this machine (default .arbe)
  ARBE_CONFIG_DIR  directory of the profiles (default $XDG_CONFIG_HOME/arbe or ~/.config/arbe)
  VISUAL, EDITOR   program that arbe env edit opens
  ARBE_PAGER, PAGER
                   program that shows what is longer than the terminal (default less, with LESS=FRX; cat is none)
  NO_COLOR         no colours if it is set to anything
  CLICOLOR_FORCE   colours even into a pipe if it is set to anything but 0

A server finds models with these, for all houses: ANTHROPIC_API_KEY (and ANTHROPIC_BASE_URL), OPENAI_API_KEY (and
OPENAI_BASE_URL, which alone is enough), OPENROUTER_API_KEY, GEMINI_API_KEY (and GOOGLE_GEMINI_BASE_URL), OLLAMA_HOST.
ARBE_OPENAI_DIALECT=responses says that OPENAI_BASE_URL speaks responses and not chat. ARBE_MODEL, as PROVIDER/MODEL, is
their default model. arbe model list shows the models that it found.

A flag takes precedence over the environment. For the choice of server and credential, see arbe help servers. For the
settings of the server itself, see arbe config.`,
	}
}

func serversTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "servers",
		Short: "How arbe finds the server and the credential to use",
		Long: `arbe uses the server that the first of these names:

  1. the flags --host, --profile and --data-dir
  2. the variables ARBE_HOST, ARBE_PROFILE and ARBE_DATA_DIR
  3. the profile in use, which arbe login HOST or arbe profile use chose
  4. .arbe in the working directory, if arbe up was started there
  5. the server that runs on this machine as you, whatever the directory; when several run, name one

The credential is ARBE_TOKEN, unless --profile names a profile. Otherwise it is the one stored for that
server: in its profile, or in the data directory of the server on this machine (cli.json). arbe sends it to no
other server, and never to an address where your server no longer runs.

arbe up and arbe serve leave a pointer to their data directory in $XDG_STATE_HOME/arbe/servers (default
~/.local/state/arbe/servers), and remove it when they stop. Profiles are in config.json of ARBE_CONFIG_DIR. Files that
other users own, or can read, are not used.

arbe auth status shows what is used here, and why.`,
	}
}

func formattingTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "formatting",
		Short: "The output of arbe for programs",
		Long: `Data goes to stdout, messages go to stderr.

--json     one object is one JSON object, a list is one JSON array. A log, and everything else that
           arrives over time (thread entries list, x), is one JSON object a line. Names and meanings are
           those of the API; times are RFC 3339; fields that are not set are left out. arbe schema VERB prints
           the JSON Schema.
           Errors go to stderr as {"error":{"code":…,"message":…,"next":…}}: the kind of failure
           (not_found, …), what went wrong, and what to do about it.
--jq       the result of a jq expression for the JSON that --json prints: strings as they are, null
           as an empty line, everything else as JSON, each on a line. --jq implies --json.
           The expression sees each object of a log by itself, and its results are printed at once.
           The expression reads nothing else: no environment, no files, no other input. A wrong one is refused
           before anything is done. One that cannot be applied to the JSON is an error, but does not undo what
           the command has done.
--template the output of a Go template (pkg.go.dev/text/template) for the same JSON, and a newline if it does not
           end with one. --template implies --json, and excludes --jq. It sees each object of a log by itself, reads
           nothing else, and fails as --jq does. Fields that are not set print <no value>. The template cannot
           call methods. Beside Go's own functions it has

             timeago TIME                "5 min ago"
             timefmt LAYOUT TIME         a time as Go's layout shows it: timefmt "Jan 2, 15:04" .created_at
             truncate COLUMNS TEXT       at most so many columns of a terminal, … at the end if cut
             join BETWEEN LIST           the values of a list as one text
             pluck FIELD LIST            that field of each object of a list
             color STYLE TEXT            STYLE is black, red, green, yellow, blue, magenta, cyan, white or gray,
                                         and bold, dim or underline, joined with +
             autocolor STYLE TEXT        the same, but only where arbe itself uses colours
             tablerow TEXT…              adds a row to a table
             tablerender                 prints the table, which otherwise comes at the end
--quiet    ids only, one a line; nothing on stderr but errors.

  arbe thread list --jq '.[] | select(.name == "talk") | .id'
  arbe thread list --jq '.[] | "\(.id): \(.name)"'
  arbe thread list --template '{{range .}}{{tablerow .id (timeago .created_at) .name}}{{end}}'
  arbe thread entries list THREAD --follow --jq 'select(.type == "chat") | .payload.text'

An entry is {"seq":…,"id":…,"type":…,"author_agent_id":…,"payload":{…},"ts":…}, always with all six; the
author is null if it is arbe itself. Between the entries of its command, x prints the live output as
{"entry_id":…,"offset":…,"data":…}, with "data_base64" in place of "data" for bytes that are not UTF-8
text. The entry with that id has all of the output.

Without --json, tables on a terminal have a header and relative times. Into a pipe they have no
header, and times are exact. On a terminal, other people's text appears without its control characters, except
that x prints the command's output as it is.`,
	}
}
