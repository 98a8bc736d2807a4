// Command ociimage writes kconsume's container image, without a container engine:
// an OCI image layout in a folder, and the same in a tar file.
//
//	go -C tools run ./ociimage -version v1.2.3 -commit abc123 -time 1700000000 \
//		-license ../LICENSE -layout ../dist/oci -tar ../dist/kconsume_v1.2.3_oci.tar \
//		amd64=../build/linux-amd64/kconsume arm64=../build/linux-arm64/kconsume
//
// The same arguments and files give the same bytes, on any machine.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "ociimage:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("ociimage", flag.ContinueOnError)
	var p product
	flags.StringVar(&p.version, "version", "", "`version` of kconsume; the image's tag")
	flags.StringVar(&p.commit, "commit", "", "`commit` that it is built from")
	seconds := flags.Int64("time", -1, "unix `time` that everything in the image has, in seconds")
	license := flags.String("license", "", "`file` of the license's text")
	layoutDir := flags.String("layout", "", "`folder` to write, made anew")
	tarFile := flags.String("tar", "", "`file` to write")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if p.version == "" || *seconds < 0 || *layoutDir == "" || *tarFile == "" || flags.NArg() == 0 {
		return errors.New("give -version, -time, -layout, -tar and a binary for each architecture, such as amd64=FILE")
	}
	p.time = time.Unix(*seconds, 0).UTC()
	var err error
	if p.license, err = os.ReadFile(*license); err != nil {
		return fmt.Errorf("read the license: %w", err)
	}
	for _, arg := range flags.Args() {
		arch, file, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("binary %q: write it as ARCHITECTURE=FILE", arg)
		}
		b, err := readBinary(arch, file)
		if err != nil {
			return err
		}
		p.binaries = append(p.binaries, b)
	}
	digest, err := p.write(*layoutDir, *tarFile)
	if err != nil {
		return err
	}
	fmt.Println(digest)
	return nil
}
