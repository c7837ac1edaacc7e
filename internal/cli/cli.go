// Package cli is what all command lines of subctl share, whatever the command: exit codes,
// help, completions, errors about arguments and flags, flags from the environment and the
// configuration file, and the flag -o. It knows no command and contacts no cluster. Package cmd
// has the commands.
package cli
