package main

import "github.com/spf13/cobra"

// The topics are help pages without a verb: "arbe help exit-codes".

func exitCodesTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What arbe exits with",
		Long: `arbe exits with

    0    it worked
    1    anything else went wrong
    2    the command line or the request is wrong
    3    there is no such thing, or it is another house's
    4    you are not logged in
    5    you are not allowed to
    6    something else must be done first, or someone else changed the same thing
    7    the server, or a part it needs, cannot be reached or takes too long
    8    a limit is reached (size, rate, disk)
  130    Ctrl-C, or the command was cancelled

arbe x exits with the exit code of the command it ran; of these, 124 says that the command ran out of
time, 128+n that signal n ended it. When the command did not run or nobody knows how it ended, it exits
with 125. When arbe itself could not ask for it, the codes above hold, and stderr says so.`,
	}
}

func environmentTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "environment",
		Short: "Which environment variables arbe reads",
		Long: `  ARBE_HOST        address of the server, such as http://127.0.0.1:8420
  ARBE_TOKEN       API key or thread's token to show it
  ARBE_HOUSE       house to work in when you are in several
  ARBE_THREAD      thread to work on when a verb names none
  ARBE_DATA_DIR    data directory of this machine's arbe up (default .arbe)
  NO_COLOR         set to anything: no colours
  CLICOLOR_FORCE   set to anything but 0: colours also into a pipe

A flag wins over the environment, the environment over what is found on this machine: arbe up leaves its
address and a key in its data directory (cli.json, readable by its user only), so on its machine you are
logged in without ARBE_HOST and ARBE_TOKEN. That key is shown to that server only.

The settings of the server itself: arbe config.`,
	}
}

func formattingTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "formatting",
		Short: "What arbe prints for programs",
		Long: `Data goes to stdout, everything said about it to stderr.

--json     one thing is one JSON object, a list of things one JSON array. A log, and everything else that
           comes bit by bit (thread entries list, x), is one JSON object a line. Names and meanings are
           those of the API; times are RFC 3339; what is not set is left out.
           Errors go to stderr as {"error":{"code":…,"message":…,"next":…}}: what kind of failure it is
           (not_found, …), what went wrong, and what to do about it.
--quiet    ids only, one a line; nothing on stderr but errors.

An entry is {"seq":…,"id":…,"type":…,"author_agent_id":…,"payload":{…},"ts":…}, always with all six; the
author is null for arbe itself. Between the entries of its command, x prints the live output as
{"entry_id":…,"offset":…,"data":…}, with "data_base64" in place of "data" for bytes that are not UTF-8
text; the entry of that id has the whole.

Without --json, tables have a header and times are relative when a person looks; into a pipe there is no
header and times are exact. What others wrote reaches a terminal without its control characters, except
from x, which prints what the command prints.`,
	}
}
