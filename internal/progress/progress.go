// Package progress tells a person what a command is doing, one line a step:
//
//   - deploying the broker …
//     ✓ deployed the broker
//     ⚠ no node is labelled as gateway
//     ✗ waiting for the gateway: timed out
//
// It belongs on stderr. What a command was asked for is data, goes to stdout and
// is the business of package printer; why a command failed is its error, and is
// printed once, by whoever ends the program.
package progress

import (
	"fmt"
	"io"
	"strings"
)

// Reporter writes progress lines. The zero Reporter says nothing. It is for one
// goroutine, and every line is one write.
type Reporter struct{ w io.Writer }

// New returns a Reporter that writes to w.
func New(w io.Writer) *Reporter { return &Reporter{w: w} }

// Step says that something begins which may take a while.
func (r *Reporter) Step(format string, args ...any) {
	r.line("•", fmt.Sprintf(format, args...)+" …")
}

// Done says that something is done.
func (r *Reporter) Done(format string, args ...any) { r.line("✓", fmt.Sprintf(format, args...)) }

// Warn says that something deserves a look, though the command goes on.
func (r *Reporter) Warn(format string, args ...any) { r.line("⚠", fmt.Sprintf(format, args...)) }

// Fail says that a step failed. The command still returns the error.
func (r *Reporter) Fail(format string, args ...any) { r.line("✗", fmt.Sprintf(format, args...)) }

// line writes text behind mark; what follows its first line is indented as far.
func (r *Reporter) line(mark, text string) {
	if r.w == nil {
		return
	}
	text = strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n   ")
	// Nothing useful can be done when stderr is gone.
	_, _ = fmt.Fprintf(r.w, " %s %s\n", mark, text)
}
