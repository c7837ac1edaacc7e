package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"

	"subctl/dataplane"
)

const numbersHead = `<!-- generated: make generate -->

# Numbers and names

What subctl takes for itself on a node and on the wire, and why. The list is
[dataplane/owner.go](../dataplane/owner.go); nothing else may choose one.
`

// numbers returns the page of the constants in a Go file: their comments say what
// they are for.
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
		fmt.Fprintf(&b, "\n%s\n| name | value | what for |\n| --- | --- | --- |\n", block.Doc.Text())
		for _, s := range block.Specs {
			spec := s.(*ast.ValueSpec)
			why := cmp.Or(reason(spec), "likewise") // a comment holds for those below it that have none
			for i, name := range spec.Names {
				value := source[set.Position(spec.Values[i].Pos()).Offset:set.Position(spec.Values[i].End()).Offset]
				fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", name.Name, shown(name.Name, string(value)), why)
			}
		}
	}
	b.WriteString(owners())
	return b.String(), nil
}

// shown returns the value of a constant as one would write it: a name that ends in Net is
// that of a network, whose first octet is the value.
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

// owners returns the table of who may remove what from a node.
func owners() string {
	var b strings.Builder
	b.WriteString(`
## Owners

The agents of one node share its kernel. Each removes only what is its own:

| owner | devices | chains and sets | nftables | tables | rule priorities | next hop IDs | route protocol |
| --- | --- | --- | --- | --- | --- | --- | --- |
`)
	for _, o := range dataplane.Owners() {
		fmt.Fprintf(&b, "| %s | `%s` | `%s*` | `%s` | %d-%d | %d-%d | %#x-%#x | %d |\n",
			o.Name, strings.Join(o.Devices, "`, `"), o.Chains, o.NFTable, o.Tables.Min, o.Tables.Max,
			o.Priorities.Min, o.Priorities.Max, o.IDs.Min, o.IDs.Max, o.Protocol)
	}
	return b.String()
}
