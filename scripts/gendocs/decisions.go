package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// recordHead is how a decision record begins. Its groups are the number, the title, the date and
// the status.
var recordHead = regexp.MustCompile(`^# (\d{4})\. (\S.*)\n\nDate: (\d{4}-\d{2}-\d{2})\n\n` +
	`Status: (accepted|superseded by \[\d{4}\]\(\S+\.md\)|withdrawn .+)\n\n## Context\n`)

// recordSections are the sections that each record has, in this order.
var recordSections = []string{"\n## Context\n", "\n## Decision\n", "\n## Consequences\n"}

// recordWords bounds a record to one page: most have half as many words.
const recordWords = 700

// decisions returns the page that lists the decision records in dir. It is an error if a record
// lacks its number, date, status or a section, or is longer than recordWords.
func decisions(dir string) (string, error) {
	var page strings.Builder
	page.WriteString("<!-- generated: make generate -->\n\n# Decisions\n\n" +
		"Each page has the context, the decision and its consequences. A decision that needs an\n" +
		"explanation gets the next number; a number is never used again.\n\n" +
		"| number | decision | status | date |\n| --- | --- | --- | --- |\n")
	files, err := filepath.Glob(filepath.Join(dir, "[0-9]*.md"))
	if err != nil {
		return "", err
	}
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		name := filepath.Base(file)
		head := recordHead.FindStringSubmatch(string(text))
		if head == nil {
			return "", fmt.Errorf(
				`%s: begin with "# NNNN. Title", "Date: YYYY-MM-DD", "Status: accepted" and "## Context", `+
					`with empty lines between`,
				name,
			)
		}
		number := head[1]
		title := head[2]
		date := head[3]
		status := head[4]
		if want := fmt.Sprintf("%04d", i+1); number != want || !strings.HasPrefix(name, want+"-") {
			return "", fmt.Errorf("%s: the file and its title must have the number %s", name, want)
		}
		at := make([]int, len(recordSections))
		for i, section := range recordSections {
			at[i] = strings.Index(string(text), section)
		}
		if slices.Contains(at, -1) || !slices.IsSorted(at) {
			return "", fmt.Errorf("%s: write the sections Context, Decision and Consequences, in this order", name)
		}
		if words := len(strings.Fields(string(text))); words > recordWords {
			return "", fmt.Errorf("%s: shorten its %d words to %d; measurements belong in docs/measurements",
				name, words, recordWords)
		}
		fmt.Fprintf(&page, "| [%s](%s) | %s | %s | %s |\n", number, name, title, status, date)
	}
	return page.String(), nil
}
