package cli

import (
	"context"
	"errors"
	"slices"
)

// Exit codes. What is looked up in a cluster, a policy or a node, say, and is not there is a
// failure, and so is a file that cannot be read or written. The command line alone is wrong usage,
// and a context that the kubeconfig does not have.
const (
	ExitDone        = 0
	ExitFailed      = 1
	ExitUsage       = 2   // the command line is wrong
	ExitTrouble     = 3   // the command worked, and found a problem, or the result of its change did not appear in time
	ExitInterrupted = 130 // by Ctrl-C or SIGTERM, as shells report it
)

// exitError carries an exit code. If err is nil, nothing is printed, because the command has
// already reported the problem.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return "trouble found"
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// UsageError marks err as a mistake on the command line, unless it is about nothing but files.
func UsageError(err error) error {
	if onlyFiles(err) {
		return err
	}
	return &exitError{ExitUsage, err}
}

// fileError is the error about a file that cannot be read or written.
type fileError struct{ error }

func (e fileError) Unwrap() error { return e.error }

// FileError marks err, which may be nil, as about a file that cannot be read or written. That is a
// failure, also where a command reports it together with mistakes on the command line.
func FileError(err error) error {
	if err == nil {
		return nil
	}
	return fileError{err}
}

// onlyFiles reports whether all errors that err joins are about files.
func onlyFiles(err error) bool {
	var about fileError
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(joined.Unwrap(), func(err error) bool { return !onlyFiles(err) })
	}
	return errors.As(err, &about)
}

// Interruption returns the error of a command that the user interrupted.
func Interruption(err error) error { return &exitError{ExitInterrupted, err} }

// Trouble returns the error of a command that has found and reported a problem.
func Trouble() error { return &exitError{code: ExitTrouble} }

// Waited returns the error of a command that has made its change, and has waited for the result
// until a problem was found, or the time limit was reached; ctx has no such limit.
func Waited(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil { // interrupted
		return err
	}
	return &exitError{ExitTrouble, err}
}

// ExitCode returns the exit code of a command that returned err.
func ExitCode(err error) int {
	if err == nil {
		return ExitDone
	}
	var e *exitError
	if errors.As(err, &e) {
		return e.code
	}
	return ExitFailed
}

// Reported reports whether the command that returned err has already printed the problem.
func Reported(err error) bool {
	var e *exitError
	return errors.As(err, &e) && e.err == nil
}
