package main

import (
	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/server"
)

func signingKey(a *app) *cobra.Command {
	return group(a, "signing-key", "Rotate the key that signs threads' tokens", signingKeyRotate)
}

// signingKeyRotate creates a new signing key directly in the database, so that it needs no server.
func signingKeyRotate(a *app) *cobra.Command {
	var dropOld, yes bool
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Create a new key for signing threads' tokens",
		Long: "Create a new key for signing the tokens of threads, in the database of DATABASE_URL or of the arbe up that runs\n" +
			"here. Servers do this every 30 days. Tokens of the old key stay valid until they expire, unless\n" +
			"--drop-old ends them at once: use it after a leak.",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dropOld {
				if err := a.confirm(cmd.Context(), yes, "end all tokens of the old keys at once?"); err != nil {
					return err
				}
			}
			cfg, _, err := a.settings(cmd)
			if err != nil {
				return err
			}
			if err := server.RotateSigningKeys(cmd.Context(), cfg, dropOld); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]bool{"rotated": true, "dropped_old": dropOld})
			}
			if dropOld {
				a.say("there is a new signing key; all earlier tokens of threads have ended")
			} else {
				a.say("there is a new signing key; tokens of the old one stay valid until they expire")
			}
			return nil
		},
	}
	settingFlags(cmd, "database_url", "secret_key")
	cmd.Flags().BoolVar(&dropOld, "drop-old", false, "end all tokens of the old keys at once")
	destroys(cmd, &yes, "drop-old")
	return cmd
}
