package main

import (
	"fmt"
	"os"
	"strings"

	"subctl/cluster/networks"
)

// The lines of docs/cni.md around the table.
const (
	tableBegins = "<!-- generated: make generate -->\n"
	tableEnds   = "<!-- end of the generated table -->\n"
)

// cni returns docs/cni.md with the table of signs.
func cni(file string) (string, error) {
	page, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	before, rest, begins := strings.Cut(string(page), tableBegins)
	_, after, ends := strings.Cut(rest, tableEnds)
	if !begins || !ends {
		return "", fmt.Errorf("%s lacks the lines around the generated table: %s%s", file, tableBegins, tableEnds)
	}
	return before + tableBegins + signTable(networks.Signs()) + tableEnds + after, nil
}

// signTable returns the table of signs in Markdown.
func signTable(signs []networks.Sign) string {
	var b strings.Builder
	b.WriteString("| plugin or proxy | signs | traffic between clusters | what to configure | basis |\n" +
		"| --- | --- | --- | --- | --- |\n")
	for _, s := range signs {
		var looked []string
		for _, plugin := range s.Plugins {
			looked = append(looked, "`networkPlugin: "+plugin+"`")
		}
		found := strings.Join(looked, " or ")
		if s.Clues() != "" && found != "" {
			found += "; "
		}
		expect := s.Expect
		if s.Warns() {
			expect += " (*warning*): " + s.Why
		}
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %s | %s | *%s* |\n", s.Product, s.Section, cell(found+s.Clues()),
			cell(expect), cell(s.Help), s.Basis)
	}
	return b.String()
}
