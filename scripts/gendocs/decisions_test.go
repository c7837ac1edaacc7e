package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDecisions(t *testing.T) {
	const record = "# 0001. Maps are sorted\n\nDate: 2026-11-30\n\nStatus: accepted\n\n" +
		"## Context\n\na\n\n## Decision\n\nb\n\n## Consequences\n\nc\n"
	for name, test := range map[string]struct {
		old, new string
		want     string
	}{
		"a record":         {want: "| [0001](0001-maps.md) | Maps are sorted | accepted | 2026-11-30 |\n"},
		"it is superseded": {old: "accepted", new: "superseded by [0002](0002-b.md)", want: "by [0002](0002-b.md) |"},
		"no date":          {old: "Date: 2026-11-30\n\n", want: `begin with "# NNNN. Title"`},
		"no status":        {old: "Status: accepted\n\n", want: `begin with "# NNNN. Title"`},
		"unknown status":   {old: "accepted", new: "old", want: `begin with "# NNNN. Title"`},
		"no consequences":  {old: "## Consequences\n", want: "write the sections"},
		"wrong order":      {old: "## Decision", new: "## Consequences\n\n## Decision", want: "write the sections"},
		"another number":   {old: "0001", new: "0002", want: "must have the number 0001"},
		"too long":         {old: "b\n", new: strings.Repeat("b ", 700) + "\n", want: "shorten its"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			text := strings.Replace(record, test.old, test.new, 1)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "0001-maps.md"), []byte(text), 0o600))
			page, err := decisions(dir)
			if err != nil {
				page = err.Error()
			}
			require.Contains(t, page, test.want)
		})
	}
}
