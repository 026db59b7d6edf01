// A stand-in for `helm template` where Helm cannot be installed: the same template engine (Go's text/template), the same
// functions (Sprig, sigs.k8s.io/yaml) and the same objects, without dependencies, hooks and a cluster.
//
//	go run render.go CHART < values.json    the rendered templates to standard output
//
// Debian's packages golang-go, golang-github-masterminds-sprig-dev and golang-k8s-sigs-yaml-dev build it.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"sigs.k8s.io/yaml"
)

type object = map[string]interface{}

// Files are those of the chart; a link is followed, as Helm follows it.
type Files struct{ folder string }

// Get returns a file's content, nothing where there is none.
func (files Files) Get(name string) string {
	content, _ := os.ReadFile(filepath.Join(files.folder, name))
	return string(content)
}

func main() {
	if err := render(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func render(folder string) error {
	var chart struct{ Name, Version, AppVersion, KubeVersion, Type, Description string }
	values, given := object{}, object{}
	if err := read(filepath.Join(folder, "Chart.yaml"), &chart); err != nil {
		return err
	}
	if err := read(filepath.Join(folder, "values.yaml"), &values); err != nil {
		return err
	}
	input, err := io.ReadAll(os.Stdin)
	if err == nil {
		err = json.Unmarshal(input, &given)
	}
	if err != nil {
		return err
	}
	override(values, given)

	top := template.New("gotpl").Option("missingkey=zero")
	functions := sprig.TxtFuncMap()
	delete(functions, "env")
	delete(functions, "expandenv")
	functions["toYaml"] = func(value interface{}) (string, error) {
		content, err := yaml.Marshal(value)
		return strings.TrimSuffix(string(content), "\n"), err
	}
	functions["fromYaml"] = func(text string) (object, error) {
		found := object{}
		err := yaml.Unmarshal([]byte(text), &found)
		return found, err
	}
	functions["include"] = func(name string, data interface{}) (string, error) {
		var text strings.Builder
		err := top.ExecuteTemplate(&text, name, data)
		return text.String(), err
	}
	functions["required"] = func(message string, value interface{}) (interface{}, error) {
		if value == nil || value == "" {
			return value, errors.New(message)
		}
		return value, nil
	}
	top.Funcs(functions)

	paths, err := filepath.Glob(filepath.Join(folder, "templates", "*"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if _, err := top.New(path).Parse(string(content)); err != nil {
			return err
		}
	}
	data := object{
		"Values":  values,
		"Chart":   chart,
		"Files":   Files{folder},
		"Release": object{"Name": "prod", "Namespace": "models", "Service": "Helm"},
	}
	for _, path := range paths {
		if strings.HasPrefix(filepath.Base(path), "_") {
			continue
		}
		var text strings.Builder
		if err := top.ExecuteTemplate(&text, path, data); err != nil {
			return err
		}
		if strings.HasSuffix(path, ".yaml") {
			// Helm prints <no value> for what is missing as nothing.
			fmt.Printf("---\n# Source: %s\n%s\n", path, strings.ReplaceAll(text.String(), "<no value>", ""))
		}
	}
	return nil
}

func read(path string, into interface{}) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return yaml.Unmarshal(content, into)
}

// override puts the given values over the chart's; null removes one.
func override(values, given object) {
	for name, value := range given {
		inner, isObject := value.(object)
		old, wasObject := values[name].(object)
		switch {
		case value == nil:
			delete(values, name)
		case isObject && wasObject:
			override(old, inner)
		default:
			values[name] = value
		}
	}
}
