package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"

	"subctl/dataplane"
)

const numbersHead = `<!-- generated: make generate -->

# Numbers and names

The numbers and names that subctl uses on a node and on the wire, with their reasons. They are defined in
[dataplane/numbers.go](../dataplane/numbers.go) and nowhere else.
`

// numbers returns the page of the constants in a Go file, with their comments.
func numbers(file string) (string, error) {
	source, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, source, parser.ParseComments)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(numbersHead)
	for _, d := range parsed.Decls {
		block, ok := d.(*ast.GenDecl)
		if !ok || block.Tok != token.CONST {
			continue
		}
		fmt.Fprintf(&b, "\n%s\n| name | value | purpose |\n| --- | --- | --- |\n", block.Doc.Text())
		for _, s := range block.Specs {
			spec := s.(*ast.ValueSpec)
			why := cmp.Or(reason(spec), "likewise") // a comment also covers the constants below it that have none
			for i, name := range spec.Names {
				value := source[set.Position(spec.Values[i].Pos()).Offset:set.Position(spec.Values[i].End()).Offset]
				fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", name.Name, shown(name.Name, string(value)), why)
			}
		}
	}
	b.WriteString(owners())
	return b.String(), nil
}

// shown returns the value of a constant for the page. If the name ends in Net, the value
// is the first octet of a network.
func shown(name, value string) string {
	if strings.HasSuffix(name, "Net") {
		return value + ".0.0.0/8"
	}
	return strings.Trim(value, `"`)
}

// reason returns the comment of a constant, in one line.
func reason(spec *ast.ValueSpec) string {
	text := spec.Doc.Text() + " " + spec.Comment.Text()
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}

// owners returns the table of owners and the kernel objects that each may remove.
func owners() string {
	var b strings.Builder
	b.WriteString(`
## Owners

The agents of a node share its kernel. Each changes, removes and uses only its own objects. Routes, policy rules and next hops
are an owner's if they have its protocol, whatever their numbers; see [ADR 39](adr/0039-ownership-by-protocol.md).

| owner | devices | chains and sets | nftables | tables | rule priorities | next hop IDs | protocol |
| --- | --- | --- | --- | --- | --- | --- | --- |
`)
	for _, o := range dataplane.Owners() {
		if o.Main { // devices, chains and next hops it has none
			fmt.Fprintf(&b, "| %s | | | %s | %d-%d, main | any | | %d |\n", o.Name, nftables(o), o.Tables.Min,
				o.Tables.Max, o.Protocol)
			continue
		}
		fmt.Fprintf(&b, "| %s | `%s` | `%s*` | %s | %d-%d; before: %d-%d | %v | %s | %d |\n",
			o.Name, strings.Join(o.Devices, "`, `"), o.Chains, nftables(o),
			o.Tables.Min, o.Tables.Max, o.Former.Min, o.Former.Max,
			o.Priorities, hexadecimal(o.IDs), o.Protocol)
	}
	return b.String()
}

// hexadecimal returns ranges as "0x10-0x1f, 0x30-0x3f".
func hexadecimal(rs dataplane.Ranges) string {
	var out []string
	for _, r := range rs {
		out = append(out, fmt.Sprintf("%#x-%#x", r.Min, r.Max))
	}
	return strings.Join(out, ", ")
}

// nftables returns the names of an owner's tables of nftables.
func nftables(o dataplane.Owner) string {
	var names []string
	for _, t := range o.Nftables {
		if !slices.Contains(names, t.Name) {
			names = append(names, t.Name)
		}
	}
	return "`" + strings.Join(names, "`, `") + "`"
}
