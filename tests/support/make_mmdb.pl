# Writes MaxMind DB files for the tests of lib/enrich/geo.h.
#   perl make_mmdb.pl DIR    DIR/city.mmdb, country.mmdb, dbip.mmdb, flat.mmdb, ipv4.mmdb
use strict;
use warnings;
use MaxMind::DB::Writer::Tree;

my ($dir) = @ARGV;
my %types = (names => 'map', subdivisions => ['array', 'map'], country => 'map', continent => 'map', city => 'map',
    location => 'map', latitude => 'double', registered_country => 'map', geoname_id => 'uint32', '' => 'utf8_string');

sub tree {
    my ($file, $version, %networks) = @_;
    my $tree = MaxMind::DB::Writer::Tree->new(
        ip_version => $version, record_size => 24, database_type => "Test-$file", languages => ['en'],
        description => {en => 'test'}, alias_ipv6_to_ipv4 => 0,
        map_key_type_callback => sub { $types{$_[0]} || 'utf8_string' });
    $tree->insert_network($_, $networks{$_}) for sort keys %networks;
    open my $out, '>:raw', "$dir/$file.mmdb.new" or die $!;
    $tree->write_tree($out);
    close $out or die $!;
    rename "$dir/$file.mmdb.new", "$dir/$file.mmdb" or die $!;
}

my $boston = {
    continent => {names => {en => 'North America'}}, location => {latitude => 42.3},
    country => {geoname_id => 6252001, iso_code => 'US', names => {de => 'USA', en => 'United States'}},
    subdivisions => [{iso_code => 'MA', names => {en => 'Massachusetts'}}, {iso_code => 'XX', names => {en => 'Within'}}],
    city => {names => {de => 'Boston (de)', en => 'Boston', ja => "\x{30dc}"}},
};
my $cologne = {country => {iso_code => 'DE'}, subdivisions => [{iso_code => 'NW'}],
    city => {names => {de => "K\x{f6}ln", en => 'Cologne', fr => 'Cologne (fr)'}}};

tree('city', 6, '::1.2.3.0/120' => $boston, '::5.6.0.0/112' => $cologne, '2a02:1::/32' => $cologne,
    '::7.7.7.0/120' => {country => {iso_code => 'FR'}, city => {names => {de => 'Nur Deutsch'}}},
    '::8.8.8.0/120' => {registered_country => {iso_code => 'US'}},
    '::9.9.9.0/120' => {country => {iso_code => 'CH', names => {en => 'Switzerland'}}, subdivisions => []});
tree('country', 6, '::1.2.3.0/120' => {country => {iso_code => 'US', names => {en => 'United States'}}},
    '2a02:1::/32' => {country => {iso_code => 'DE'}});
tree('dbip', 6, '::1.2.3.0/120' => {continent => {names => {en => 'North America'}}, country => {iso_code => 'US'},
    city => {names => {en => 'Boston'}}, subdivisions => [{names => {en => 'Massachusetts'}}]});
tree('flat', 6, '::1.2.3.0/120' => {country_code => 'US'});
tree('ipv4', 4, '1.2.3.0/24' => $boston);
